"""Endings of runs: by the state that its tracker recorded, and by its last step beside those of the other runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from addnorm.errors import InputError, did_you_mean
from addnorm.statistics.result import Result
from addnorm.statistics.run_tables.numerals import is_missing
from addnorm.words import Sentence, listed, say

_STATES = {
    "finished": "finished finish completed complete succeeded success successful done ok ended",
    "running": "running pending queued scheduled starting started waiting active unfinished in_progress",
    "failed": "failed failure fail crashed crash killed error errored aborted canceled cancelled preempted preempting "
    "interrupted stopped timeout timed_out oom out_of_memory terminated dead",
    "diverged": "diverged nan",
}
STATE_OF = {word: state for state, words in _STATES.items() for word in words.split()}
"""The state of a run by the word for it in W&B, MLflow, Slurm and others, in small letters."""
NOT_ENDED = "Write nan for a run that diverged (inf in a data frame), and leave out one that has not ended."
_NEARLY = 0.9
"""Share of the other runs' last step from which a run that has no state counts as ended."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a table."""

    where: str
    variant: str
    seed: int
    loss: float | None
    """None if the table has none."""
    written: object = None
    """The loss as the table writes it."""
    state: str | None = None
    """As the table writes it; None if it tells nothing."""
    step: float | None = None
    """Of the loss; None if the table tells nothing."""
    compute: float | None = None
    """Of the whole run, up to that step; None if the table tells nothing."""
    throughput: float | None = None


def state_of(word: object, column: str, where: str) -> str:
    """The state that a table's word stands for.

    Raises:
        InputError: a word that stands for none.
    """
    state = STATE_OF.get(_folded(word))
    if state is None:
        got = "an empty cell" if is_missing(word) else repr(word)
        raise InputError(
            f"{where}: expected the state of a run in column {column!r}, such as finished, running or crashed, got {got}."
            f"{did_you_mean(word, STATE_OF)} If the column holds something else, give --columns state= to leave it out."
        )
    return state


def tells_states(words: Sequence[object]) -> bool:
    """True if at least one word stands for a state."""
    return any(_folded(word) in STATE_OF for word in words)


def results_of(runs: Sequence[Run], loss_column: str, state_column: str | None) -> tuple[list[Result], list[Sentence]]:
    """The results of runs, and what a reader has to know about those that have not ended.

    A run that recorded no state and ends well before the others of its variant has failed.

    Raises:
        InputError: a word that is no state, or a finished run without a loss.
    """
    results, sentences = [], []
    last: dict[str, float] = {}
    for run in runs:
        if run.step is not None:
            last[run.variant] = max(run.step, last.get(run.variant, run.step))
    early: dict[str, list[Run]] = {}
    for run in runs:
        state, reason = "finished", None
        if run.state is not None:
            state = state_of(run.state, state_column or "state", run.where)
            reason = None if state in ("finished", "running") else f"its state is {run.state!r}"
        step, whole = run.step, last.get(run.variant, 0.0)
        if state == "finished" and step is not None and step < whole:
            if run.state is None and step < _NEARLY * whole:
                state, reason = (
                    "failed",
                    f"its last step is {step:.10g}, that of other runs of the variant {whole:.10g}",
                )
            else:
                early.setdefault(run.variant, []).append(run)
        results.append(_result(run, loss_column, state, reason))
    for variant, behind in early.items():
        each = listed("comma", (say("at_step", seed=run.seed, step=run.step or 0.0) for run in behind))
        sentences.append(say("ends_early", variant=variant, runs=each, last=last[variant]))
    finished = {r.variant for r in results if r.state == "finished"}
    ends = {variant: step for variant, step in last.items() if variant in finished}
    if len(set(ends.values())) > 1:
        each = listed("comma", (say("ends_at", variant=name, step=step) for name, step in ends.items()))
        sentences.append(say("unequal_steps", variants=each))
    return results, sentences


def _result(run: Run, column: str, state: str, reason: str | None) -> Result:
    if state == "finished" and run.loss is None:
        raise InputError(f"{run.where}: expected a number in column {column!r}, got {run.written!r}. {NOT_ENDED}")
    if run.loss is not None and not math.isfinite(run.loss) and state in ("finished", "failed"):
        state, reason = "diverged", f"its loss is {run.loss}"
    return Result(
        variant=run.variant, seed=run.seed, loss=run.loss if state == "finished" else None, state=state, reason=reason
    )


def _folded(word: object) -> str:
    return str(word).strip().casefold().replace(" ", "_").replace("-", "_")
