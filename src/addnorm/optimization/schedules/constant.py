"""Constant: the peak learning rate throughout, after the warm-up.

Why: a run may be stopped or prolonged at any step and stays comparable.

Source: none.
"""

from dataclasses import dataclass

from addnorm.optimization.schedules import ScheduleSpec


@dataclass(frozen=True, kw_only=True)
class Constant(ScheduleSpec):
    """Spec of the constant schedule."""

    def after_warmup(self, progress: float) -> float:
        """One."""
        return 1.0
