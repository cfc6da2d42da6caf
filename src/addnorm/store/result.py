"""Result of one run, as the statistics take it: `RunStatus` to `Result`."""

from collections.abc import Collection, Mapping
from typing import Any

from addnorm.statistics import Result
from addnorm.store.status import RunStatus
from addnorm.store.study import StudyFolder


def result(
    folder: StudyFolder,
    status: RunStatus,
    ending: Mapping[str, Any] | None,
    later: Collection[str] = (),
    evaluation: Mapping[str, Any] | None = None,
) -> Result:
    """Result of one run.

    Args:
        folder: the study.
        status: status of the run.
        ending: content of its DONE, FAILED or BLOCKED.
        later: names of the runs that were added to the first plan.
        evaluation: newest evaluation of the run, of which the losses by part of the text are read; None if it has none.
    """
    state, reason = status.state, status.reason
    if (
        state == "finished" and status.loss is None
    ):  # damaged events of one run must not prevent the ranking of the others
        path = folder.path / status.run / "events.jsonl"
        state, reason = "blocked", f"{path} is damaged or contains no evaluation. Restore it from a copy."
    done = state == "finished"
    text = (evaluation or {}).get("text", {})  # runs of earlier versions have none
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
        trained=status.steps > 0,
        reason=reason,
        part_losses=text.get("part_losses", ()) if done else (),
        part_tokens=text.get("part_tokens", ()) if done else (),
    )
