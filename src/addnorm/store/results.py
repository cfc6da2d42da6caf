"""From run folders to what the ranking takes."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from addnorm.statistics import Ranking, Result, rank
from addnorm.store.files import Damaged
from addnorm.store.status import RunStatus
from addnorm.store.study import StudyFolder
from addnorm.words import say


def results(folder: StudyFolder) -> list[Result]:
    """One result per run, whatever became of it. Those of an extension are not of the plan."""
    later = added_later(folder)
    return [result(folder, run.status(), run.ending(), later) for run in folder.runs()]


def added_later(folder: StudyFolder) -> frozenset[str]:
    """Names of the runs that were added to the first plan."""
    return frozenset(run["run"] for extension in folder.extensions for run in extension["runs"])


def result(folder: StudyFolder, status: RunStatus, ending: Mapping[str, Any] | None, later: Collection[str]) -> Result:
    """What one run has come to.

    Args:
        status: the run's.
        ending: what its DONE, FAILED or BLOCKED holds.
        later: runs that were added to the first plan.
    """
    state, reason = status.state, status.reason
    if state == "finished" and status.loss is None:  # one run's damaged events must not hide the other runs
        path = folder.path / status.run / "events.jsonl"
        state, reason = "blocked", f"{path} is damaged or holds no evaluation. Restore it from a copy."
    done = state == "finished"
    return Result(
        run=status.run,
        variant=status.variant,
        seed=status.seed,
        state=state,
        loss=status.loss if done else None,
        accuracy=status.accuracy if done else None,
        perplexity=status.perplexity if done else None,
        content_hash=(ending or {}).get("content_hash"),
        corpus_hash=folder.plan.get("data_hash"),
        tokenizer_hash=folder.plan.get("tokenizer_hash"),
        planned=status.run not in later,
        reason=reason,
    )


def ranking(
    folder: StudyFolder, overrides: Mapping[str, Any] | None = None, *, found: Sequence[Result] | None = None
) -> Ranking:
    """The study's ranking as it stands.

    Args:
        folder: the study's folder.
        overrides: `references` or `margin` in place of the plan's.
        found: the runs' results, where they are known already; read from the folder if not given.

    Raises:
        InputError: an unknown reference, or results that cannot be compared.
        Damaged: the plan lacks its references or margin.
    """
    for name in ("references", "margin"):
        if name not in folder.plan:
            raise Damaged(say("plan_lacks", path=str(folder.path / "study.json"), name=name))
    chosen = {"references": folder.plan["references"], "margin": folder.plan["margin"], **(overrides or {})}
    return rank(
        results(folder) if found is None else found,
        references=tuple(chosen["references"]),
        margin=chosen["margin"],
        added_after_look=[
            seed for extension in folder.extensions if extension["looked"] for seed in extension["seeds"]
        ],
    )
