"""Room of the schedules: the learning rate's factor at each step.

Convention: updates are numbered from 0 to steps - 1. With W warm-up steps the factor is step / W before step W (so the
first update of a warmed-up run has learning rate zero) and the schedule's own function of (step - W) / (steps - W)
after it, which never quite reaches its end: the end belongs to update number `steps`, which is not run. That is the
convention of Hugging Face's `get_cosine_schedule_with_warmup`. With it, 170 025 steps of cosine from 3e-4 with 1.5 %
warm-up and weight decay 0.1 leave 0.0780502 of an undriven parameter, and 0.078046 in float32 arithmetic: the value
that Kuang (2025) prints.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64

from addnorm.catalogue import Spec
from addnorm.errors import InputError
from addnorm.optimization.optimizers import OptimizerSpec

__all__ = ["ScheduleSpec"]


@dataclass(frozen=True, kw_only=True)
class ScheduleSpec(Spec, ABC):
    """Base of every schedule.

    Raises:
        InputError: a field is out of range.
    """

    warmup: float = 0.015
    """Linear warm-up from zero: below 1 a share of all steps (rounded up), from 1 on a whole number of steps."""

    def __post_init__(self) -> None:
        if not (0 <= self.warmup < 1 or self.warmup == int(self.warmup) > 0):
            raise InputError(f"warmup is a share of all steps below 1, or a whole number of steps; got {self.warmup}.")

    def factor(self, step: int, steps: int) -> float:
        """What the peak learning rate is multiplied by at update `step` of `steps`, from 0 to 1.

        Raises:
            InputError: no such step, or the warm-up is as long as the run.
        """
        if not 0 <= step < steps:
            raise InputError(f"steps are numbered 0 to {steps - 1}, got step {step}.")
        warmup = self.warmup_steps(steps)
        if step < warmup:
            return step / warmup
        return self.after_warmup((step - warmup) / (steps - warmup))

    def factors(self, steps: int) -> Float64[np.ndarray, "{steps}"]:
        """The factors of all `steps` updates of a run.

        Raises:
            InputError: the warm-up is as long as the run.
        """
        warmup = self.warmup_steps(steps)
        after = [self.after_warmup((step - warmup) / (steps - warmup)) for step in range(warmup, steps)]
        return np.concatenate([np.arange(warmup) / max(1, warmup), after])

    def warmup_steps(self, steps: int) -> int:
        """Number of warm-up steps in a run of `steps`.

        Raises:
            InputError: the warm-up leaves no step after it.
        """
        # The small margin keeps a product like 0.07 · 100 = 7.000000000000001 from becoming 8.
        count = math.ceil(self.warmup * steps - 1e-9) if self.warmup < 1 else int(self.warmup)
        if count >= steps:
            raise InputError(f"warm-up must be shorter than the run: {count} steps of {steps}. Lower warmup.")
        return count

    @abstractmethod
    def after_warmup(self, progress: float) -> float:
        """The factor at the given progress in [0, 1) from the end of the warm-up to the end of the run."""


def decay_factor(
    schedule: ScheduleSpec, optimizer: OptimizerSpec, steps: int, dtype: type[np.floating[Any]] = np.float64
) -> float:
    """What weight decay alone leaves of a learned scalar that decays, after `steps` updates: Π_t (1 - lr_t · wd).

    Args:
        dtype: numbers that the product is rounded to after every step; `np.float32` gives what a float32 parameter
            that starts at a power of two really shows, rounding included.

    Raises:
        InputError: the warm-up is as long as the run.
    """
    group = {"lr": 1.0, "weight_decay": optimizer.weight_decay, "role": "elementwise"}
    rate = optimizer.decay_rate(torch.zeros(()), group)  # proportional to the learning rate
    kept = 1 - optimizer.learning_rate * schedule.factors(steps) * rate
    return float(np.multiply.accumulate(kept.astype(dtype))[-1])  # step by step, each product rounded
