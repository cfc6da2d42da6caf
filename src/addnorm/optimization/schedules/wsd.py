r"""WSD: warm-up, a stable rate, and a decay over the last share of the run.

    factor = 1        before the decay
    factor = final + (1 - final) (1 - u)        if shape == 'linear'
    factor = final + (1 - final) (1 - sqrt(u)), u from 0 to 1 during the decay        if shape == 'sqrt'

Why: runs of different length share the stable part, so that one of them, with a decay from any of its checkpoints, stands for
many.

Source: Hu et al. 2024, "MiniCPM", arXiv:2404.06395, section 4; the shape `sqrt`: Hägele et al. 2024, "Scaling Laws and
Compute-Optimal Training Beyond Fixed Training Durations", arXiv:2405.18392, equation 1.
Differs from the source: MiniCPM's decay is exponential; a run has one decay, at its end.
"""

import math
from dataclasses import dataclass
from typing import Literal

from addnorm.fields import require
from addnorm.optimization.schedules import ScheduleSpec


@dataclass(frozen=True, kw_only=True)
class Wsd(ScheduleSpec):
    """Spec of the warm-up, stable, decay schedule.

    Raises:
        FieldError: a field is out of range.
    """

    decay: float = 0.2
    """Share of the steps after the warm-up over which the rate decays."""
    shape: Literal["linear", "sqrt"] = "sqrt"
    """Shape of the decay."""
    final: float = 0.0
    """Factor at the end of the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "decay", 0 < self.decay <= 1, "a share of the steps above 0 and at most 1")
        require(self, "final", 0 <= self.final <= 1, "a share of the peak learning rate from 0 to 1")

    def after_warmup(self, progress: float) -> float:
        """One, and from 1 - decay on down to `final`."""
        done = max(0.0, (progress - (1 - self.decay)) / self.decay)
        return self.final + (1 - self.final) * (1 - (math.sqrt(done) if self.shape == "sqrt" else done))
