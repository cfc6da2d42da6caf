"""Input of the ranking: one record per run, finished or not."""

import math
import re
from dataclasses import dataclass

from addnorm.errors import InputError, UnknownName
from addnorm.words import say

STATES = ("queued", "running", "interrupted", "blocked", "failed", "finished", "diverged")
"""Every state that a run can be in."""

ENDED = ("finished", "failed", "diverged")
"""Final states."""

FEWEST_SEEDS = 3
"""Shared seeds that a verdict needs; with fewer only values are shown."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """Outcome of one run (variant × seed).

    Example:
        >>> Result(variant="base", seed=0, loss=2.5297, accuracy=0.5021).name
        'base/0'

    Raises:
        InputError: a finished run without a finite loss, or an unfinished one with a loss.
        UnknownName: a state that is not one of `STATES`.
    """

    variant: str
    seed: int
    loss: float | None = None
    """Held-out cross-entropy in nats per token; None if the run has not finished."""
    accuracy: float | None = None
    """Share of scored positions at which the argmax is the target, 0 to 1."""
    perplexity: float | None = None
    """exp(loss), as reported by the run."""
    state: str = "finished"
    """One of `STATES`."""
    content_hash: str | None = None
    """Hash of the final weights. Equal hashes mean the same computation, not a replicate."""
    corpus_hash: str | None = None
    tokenizer_hash: str | None = None
    planned: bool = True
    """False for a run that was added to the study's first plan."""
    trained: bool = True
    """False for a model that was evaluated as it is, without a training step."""
    reason: str | None = None
    """Reason of a failure or divergence."""
    run: str | None = None
    """Name of the run for messages; `variant/seed` if not given."""
    part_losses: tuple[float, ...] = ()
    """Losses on consecutive parts of the held-out text, in nats per token; empty where they are not known."""
    part_tokens: tuple[int, ...] = ()
    """Scored tokens of these parts."""

    def __post_init__(self) -> None:
        for name in ("part_losses", "part_tokens"):  # a file of results has lists
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if len(self.part_losses) != len(self.part_tokens):
            raise InputError(
                f"run {self.name}: expected as many part_losses as part_tokens, got {len(self.part_losses)} and "
                f"{len(self.part_tokens)}."
            )
        if self.state not in STATES:
            raise UnknownName("run state", self.state, STATES)
        if self.state == "finished" and (self.loss is None or not math.isfinite(self.loss)):
            raise InputError(
                f"run {self.name}: expected a finite loss, got {self.loss}. "
                "Record a run with a loss that is not finite as 'diverged'."
            )
        if self.state != "finished" and self.loss is not None:
            raise InputError(
                f"run {self.name}: expected no loss in state {self.state!r}, got {self.loss}. "
                "Leave the loss out, or record the run as 'finished'."
            )
        if self.accuracy is not None and not 0 <= self.accuracy <= 1:
            raise InputError(
                f"run {self.name}: expected an accuracy between 0 and 1, got {self.accuracy}. Divide per cent by 100."
            )

    @property
    def name(self) -> str:
        """Name of the run in messages."""
        return self.run if self.run is not None else f"{self.variant}/{self.seed}"

    @property
    def ended(self) -> bool:
        """True in a final state."""
        return self.state in ENDED

    @property
    def finished_loss(self) -> float:
        """Loss of a finished run, in nats per token.

        Raises:
            InputError: the run has not finished.
        """
        if self.loss is None:
            raise InputError(f"run {self.name}: expected a finished run, got state {self.state!r}.")
        return self.loss


_NOT_FINITE = re.compile(r"the (loss|gradient's norm) became (\S+) at step (\d+)")


def ending_reason(reason: str) -> str:
    """The reason that a run recorded, as a sentence of the catalogue where it is the usual one, so that pages translate it."""
    matched = _NOT_FINITE.fullmatch(reason)
    if matched is None:
        return reason
    return say(
        "not_finite_loss" if matched[1] == "loss" else "not_finite_gradient", value=matched[2], step=int(matched[3])
    )
