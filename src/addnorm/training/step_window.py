"""The steps since the last training event. What they measured stays on the device until it is read, all at once."""

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Step:
    """Loss and gradient of one optimizer step, on the device."""

    loss: Tensor
    """Nats per scored token of the batch, before the update; scalar."""
    grad_norm: Tensor
    """Norm of the whole gradient, before clipping; scalar."""


LossAndNorm = tuple[float, float]
"""Loss and gradient norm of one step."""


def equal(first: LossAndNorm, now: LossAndNorm) -> bool:
    """True if two measurements of a step are the same numbers, NaN included."""
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(first, now, strict=True))


class StepWindow:
    """Steps since the last training event. Its clock excludes evaluations and checkpoints.

    Args:
        step: the steps done before.
    """

    def __init__(self, step: int) -> None:
        self.restart(step)

    def restart(self, step: int) -> None:
        """Begin a new window after `step`."""
        self.first = step
        self.measured: list[LossAndNorm] = []
        """The steps that have been read."""
        self._unread: list[Step] = []
        self._timed = 0
        self._elapsed_s = 0.0
        self._since = time.monotonic()

    def restart_clock(self) -> None:
        """Exclude the time since the last step."""
        self._since = time.monotonic()

    def add(self, step: Step) -> None:
        """Add a step, without waiting for the device."""
        self._unread.append(step)
        self._timed += 1
        self._count_time()

    def read(self) -> None:
        """Read the steps from the device, which waits for it to have computed them."""
        if self._unread:
            # One copy for all steps since the last read: one per number would wait for the device each time.
            table = torch.stack([value for step in self._unread for value in (step.loss, step.grad_norm)])
            values: list[float] = table.tolist()
            self.measured += zip(values[::2], values[1::2], strict=True)
            self._unread = []
            # The wait belongs to the training time: `add` saw how long it took to queue the steps, not to compute them.
            self._count_time()

    def cut(self, step: int) -> None:
        """Forget the steps after `step`."""
        del self.measured[step - self.first :]

    @property
    def steps_per_s(self) -> float:
        """Speed of the window's steps, those that `cut` forgot included: their time cannot be told apart."""
        return self._timed / max(self._elapsed_s, 1e-9)

    def _count_time(self) -> None:
        now = time.monotonic()
        self._elapsed_s += now - self._since
        self._since = now
