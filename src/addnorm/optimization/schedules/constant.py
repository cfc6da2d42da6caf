"""Constant: the peak learning rate throughout, after the warm-up.

Why: runs of different length are comparable step by step.

Source: none.
"""

from dataclasses import dataclass

from addnorm.optimization.schedules import ScheduleSpec


@dataclass(frozen=True, kw_only=True)
class Constant(ScheduleSpec):
    """Spec of the constant schedule."""

    def after_warmup(self, progress: float) -> float:
        """The factor 1."""
        return 1.0
