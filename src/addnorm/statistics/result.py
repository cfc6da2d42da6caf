"""What a ranking reads: one record per run, finished or not."""

import math
from dataclasses import dataclass

from addnorm.errors import InputError, UnknownName

STATES = ("queued", "running", "interrupted", "blocked", "failed", "finished", "diverged")
"""Every state that a run can be in."""

ENDED = ("finished", "failed", "diverged")
"""States that no further work changes."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one run (variant × seed) has come to.

    Raises:
        InputError: a finished run without a finite loss, or an unfinished one with a loss.
        UnknownName: a state that runs do not have.
    """

    variant: str
    seed: int
    loss: float | None = None
    """Held-out cross-entropy in nats per token; None where the run has not finished."""
    accuracy: float | None = None
    """Share of scored positions whose argmax is the target, 0 to 1."""
    perplexity: float | None = None
    """exp(loss), as the run reported it."""
    state: str = "finished"
    """One of `STATES`."""
    content_hash: str | None = None
    """Hash of what the run produced. Equal hashes mean the same computation, not a replicate."""
    corpus_hash: str | None = None
    tokenizer_hash: str | None = None
    planned: bool = True
    """Whether the study's first plan held this run; False for one that was added later."""
    reason: str | None = None
    """Why the run failed or diverged."""
    run: str | None = None
    """The run's own name, for messages; `variant/seed` where there is none."""

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise UnknownName("run state", self.state, STATES)
        if self.state == "finished" and (self.loss is None or not math.isfinite(self.loss)):
            raise InputError(
                f"a finished run has a finite loss: {self.name} arrived with loss {self.loss}. "
                "Record a run whose loss is not a number as 'diverged'."
            )
        if self.state != "finished" and self.loss is not None:
            raise InputError(
                f"only a finished run has a final loss: {self.name} is {self.state!r} and has loss {self.loss}. "
                "Leave the loss out, or record the run as 'finished'."
            )
        if self.accuracy is not None and not 0 <= self.accuracy <= 1:
            raise InputError(
                f"accuracy is a share between 0 and 1: {self.name} arrived with {self.accuracy}. "
                "Divide per cent by 100."
            )

    @property
    def name(self) -> str:
        """The run's name as messages print it."""
        return self.run if self.run is not None else f"{self.variant}/{self.seed}"

    @property
    def ended(self) -> bool:
        """Whether the run's state is final."""
        return self.state in ENDED

    @property
    def finished_loss(self) -> float:
        """The loss of a finished run, in nats per token."""
        if self.loss is None:
            raise InputError(f"{self.name} has not finished: its state is {self.state!r}.")
        return self.loss
