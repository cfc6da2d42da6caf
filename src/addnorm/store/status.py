"""A run's status: its state and its newest numbers."""

from dataclasses import dataclass, fields
from typing import Any, Literal

State = Literal["queued", "running", "interrupted", "blocked", "failed", "finished", "diverged"]


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """State and newest numbers of one run. Every room passes this object on instead of copying its fields.

    Example:
        >>> status = RunStatus(run="base-s0", variant="base", seed=0, state="queued", step=0, steps=100)
        >>> status.state, status.loss, status.is_over
        ('queued', None, False)
    """

    run: str
    """Name of the run and of its folder."""
    variant: str
    seed: int
    state: State
    step: int
    """Step of the newest event."""
    steps: int
    """Number of training steps in the plan."""
    loss: float | None = None
    """Nats per token of the newest evaluation, else of the newest training event; None before both, or if not finite."""
    accuracy: float | None = None
    """Of the newest evaluation, between 0 and 1."""
    perplexity: float | None = None
    """Of the newest evaluation."""
    attempts: int = 0
    """Number of the newest attempt; 0 before the first."""
    reason: str | None = None
    """Reason of the state, where there is one."""
    uncompiled: str | None = None
    """Reason why the newest attempt trains uncompiled although `training.compile` is set; None if it is not so."""

    @property
    def is_over(self) -> bool:
        """True for a run that needs no further training: finished, failed or diverged."""
        return self.state in ("finished", "failed", "diverged")

    def to_json(self) -> dict[str, Any]:
        """The run's entry in `addnorm status --json`: these fields alone, also of a subclass that has more."""
        return {field.name: getattr(self, field.name) for field in fields(RunStatus)}
