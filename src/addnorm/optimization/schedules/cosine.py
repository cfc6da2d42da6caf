r"""Cosine: half a cosine wave from the peak down to a final share of it.

    factor = final + (1 - final) (1 + cos(pi p)) / 2,    p = (step - W) / (steps - W) after W warm-up steps

Why: what Kuang (2025) and most published language models are trained with.

Source: Loshchilov and Hutter 2016, "SGDR", arXiv:1608.03983, equation 5, without restarts.
Differs from the source: a linear warm-up comes before it.
"""

import math
from dataclasses import dataclass

from addnorm.errors import InputError
from addnorm.optimization.schedules import ScheduleSpec


@dataclass(frozen=True, kw_only=True)
class Cosine(ScheduleSpec):
    """Spec of the cosine schedule.

    Raises:
        InputError: a field is out of range.
    """

    final: float = 0.0
    """Factor that the schedule ends at."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.final <= 1:
            raise InputError(f"final is a share of the peak learning rate, from 0 to 1; got {self.final}.")

    def after_warmup(self, progress: float) -> float:
        """Half a cosine wave from 1 to `final`."""
        return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * progress))
