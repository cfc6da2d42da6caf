"""Room of the schedules: the factor of the learning rate at each step. One file each.

Convention: updates are numbered from 0 to steps - 1. With W warm-up steps, the factor is step / W before step W, so that the
first update has learning rate zero, and a function of (step - W) / (steps - W) from step W on. The function's end belongs to
update number `steps`, which is not run. This is the convention of Hugging Face's `get_cosine_schedule_with_warmup`. With it,
170 025 steps of cosine from 3e-4 with 1.5 % warm-up and weight decay 0.1 leave 0.0780502 of a parameter without gradients,
and 0.078046 in float32 arithmetic, the value in Kuang (2025).
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
from addnorm.fields import FieldError, require
from addnorm.optimization.optimizers import OptimizerSpec

__all__ = ["ScheduleSpec"]


@dataclass(frozen=True, kw_only=True)
class ScheduleSpec(Spec, ABC):
    """Base of every schedule's spec.

    Raises:
        FieldError: a field is out of range.

    Example:
        >>> from addnorm.optimization.schedules.constant import Constant
        >>> [float(factor) for factor in Constant(warmup=2).factors(5)]
        [0.0, 0.5, 1.0, 1.0, 1.0]
    """

    warmup: float = 0.015
    """Linear warm-up from zero: below 1 a share of all steps (rounded up), from 1 a number of steps."""

    def __post_init__(self) -> None:
        valid = 0 <= self.warmup < 1 or self.warmup == int(self.warmup) > 0
        require(self, "warmup", valid, "a share of all steps below 1, or a whole number of steps")

    def factor(self, step: int, steps: int) -> float:
        """Factor of the peak learning rate at update `step` of `steps`, from 0 to 1.

        Raises:
            InputError: no such step, or the warm-up is not shorter than the run.
        """
        if not 0 <= step < steps:
            raise InputError(f"step: expected a number from 0 to {steps - 1}, got {step}.")
        warmup = self.warmup_steps(steps)
        if step < warmup:
            return step / warmup
        return self.after_warmup((step - warmup) / (steps - warmup))

    def factors(self, steps: int) -> Float64[np.ndarray, "{steps}"]:
        """The factors of all `steps` updates of a run.

        Raises:
            InputError: the warm-up is not shorter than the run.
        """
        warmup = self.warmup_steps(steps)
        after = [self.after_warmup((step - warmup) / (steps - warmup)) for step in range(warmup, steps)]
        return np.concatenate([np.arange(warmup) / max(1, warmup), after])

    def warmup_steps(self, steps: int) -> int:
        """Number of warm-up steps in a run of `steps`.

        Raises:
            FieldError: the warm-up is not shorter than the run.
        """
        # Without the small margin, a product such as 0.07 · 100 = 7.000000000000001 would be rounded up to 8.
        count = math.ceil(self.warmup * steps - 1e-9) if self.warmup < 1 else int(self.warmup)
        if count >= steps:
            problem = f"expected fewer steps than the run's {steps}, got {count}. Lower warmup, or train for longer."
            raise FieldError(self.kind, "warmup", problem)
        return count

    @abstractmethod
    def after_warmup(self, progress: float) -> float:
        """The factor at a progress in [0, 1) between the end of the warm-up and the end of the run."""


def decay_factor(
    schedule: ScheduleSpec, optimizer: OptimizerSpec, steps: int, dtype: type[np.floating[Any]] = np.float64
) -> float:
    """Share of a learned scalar that remains after `steps` updates of weight decay alone: Π_t (1 - lr_t · wd).

    Args:
        schedule: the schedule of the learning rate.
        optimizer: its peak learning rate and weight decay.
        steps: number of updates.
        dtype: type to which the product is rounded after every step. `np.float32` gives the exact value of a float32
            parameter that starts at a power of two.

    Raises:
        InputError: the warm-up is not shorter than the run.
    """
    group = {"lr": 1.0, "weight_decay": optimizer.weight_decay, "role": "elementwise"}
    rate = float(optimizer.decay_rate(torch.zeros(()), group))  # proportional to the learning rate
    factors = 1 - optimizer.learning_rate * schedule.factors(steps) * rate
    return float(np.multiply.accumulate(factors.astype(dtype))[-1])  # step by step, each product rounded
