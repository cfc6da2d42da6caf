r"""Cosine: half a cosine wave from the peak down to a final share of it.

    factor = final + (1 - final) (1 + cos(pi p)) / 2,    p = (step - W) / (steps - W) after W warm-up steps

Why: the schedule of Kuang (2025) and of most published language models.

Source: Loshchilov and Hutter 2016, "SGDR", arXiv:1608.03983, equation 5, without restarts.
Differs from the source: a linear warm-up precedes it.
"""

import math
from dataclasses import dataclass

from addnorm.fields import require
from addnorm.optimization.schedules import ScheduleSpec


@dataclass(frozen=True, kw_only=True)
class Cosine(ScheduleSpec):
    """Spec of the cosine schedule.

    Raises:
        FieldError: a field is out of range.
    """

    final: float = 0.0
    """Factor at the end of the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "final", 0 <= self.final <= 1, "a share of the peak learning rate from 0 to 1")

    def after_warmup(self, progress: float) -> float:
        """Half a cosine wave from 1 to `final`."""
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * progress))
