"""Results of a study's folder, and their ranking: `StudyFolder` to `Result` to `Ranking`."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from addnorm.errors import InputError
from addnorm.statistics import Ranking, Result, rank
from addnorm.statistics.seeds_in_stages import SeedsInStages
from addnorm.store.files import Damaged
from addnorm.store.status import RunStatus
from addnorm.store.study import StudyFolder
from addnorm.words import say


def results(folder: StudyFolder) -> list[Result]:
    """One result per run, in every state. Runs of an extension are marked as not planned.

    Raises:
        InputError, Damaged: a run's spec is missing or damaged.
    """
    later = added_later(folder)
    return [result(folder, run.status(), run.ending(), later) for run in folder.runs()]


def added_later(folder: StudyFolder) -> frozenset[str]:
    """Names of the runs that were added to the first plan, other than by its design."""
    return frozenset(
        run["run"] for extension in folder.extensions if "stage" not in extension for run in extension["runs"]
    )


def design(folder: StudyFolder) -> SeedsInStages | None:
    """The design of a plan that adds seeds in stages; None for any other.

    Raises:
        Damaged: the design cannot be read.
    """
    content = folder.plan.get("design")
    if content is None:
        return None
    try:
        return SeedsInStages.from_json(content)
    except InputError as error:
        raise Damaged(f"{folder.path / 'study.json'} is damaged: {error} Restore it from a copy.") from error


def result(folder: StudyFolder, status: RunStatus, ending: Mapping[str, Any] | None, later: Collection[str]) -> Result:
    """Result of one run.

    Args:
        folder: the study.
        status: status of the run.
        ending: content of its DONE, FAILED or BLOCKED.
        later: names of the runs that were added to the first plan.
    """
    state, reason = status.state, status.reason
    if (
        state == "finished" and status.loss is None
    ):  # damaged events of one run must not prevent the ranking of the others
        path = folder.path / status.run / "events.jsonl"
        state, reason = "blocked", f"{path} is damaged or contains no evaluation. Restore it from a copy."
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
    """Ranking of a study in its present state.

    Args:
        folder: the study.
        overrides: `references` or `margin` to use instead of the plan's; `left_out`: variants that take no part.
        found: results of the runs, if already known; read from the folder otherwise.

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
        left_out=chosen.get("left_out", ()),
        added_after_look=[
            seed for extension in folder.extensions if extension["looked"] for seed in extension["seeds"]
        ],
        design=design(folder),
    )
