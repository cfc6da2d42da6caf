"""Training batches, the next one made while the device computes."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from addnorm.training.objective import Batch


class Batches:
    """The batches of a training, as a function of the step.

    Args:
        make: the batch of a step, on the CPU.
        pin: None to make a batch when it is asked for. Otherwise a thread makes the next batch meanwhile, and `pin` copies each
            tensor into memory from which a device reads without the CPU (`Tensor.pin_memory`).
    """

    def __init__(self, make: Callable[[int], Batch], pin: Callable[[Tensor], Tensor] | None) -> None:
        self._make, self._pin = make, pin
        self._thread = None if pin is None else ThreadPoolExecutor(1, "batches")
        self._next: tuple[int, Future[Batch]] | None = None

    def take(self, step: int) -> Batch:
        """The batch of a step; begins the next one."""
        if self._thread is None:
            return self._make(step)
        # A batch is a function of its step (`addnorm.data.batches`), so it does not matter when, or on which thread, it
        # is made. What the thread made for another step is dropped; its errors are raised here.
        begun = self._next is not None and self._next[0] == step  # all but the first of an attempt
        batch = self._next[1].result() if self._next is not None and begun else self._pinned(step)
        self._next = (step + 1, self._thread.submit(self._pinned, step + 1))
        return batch

    def _pinned(self, step: int) -> Batch:
        assert self._pin is not None
        return self._make(step).mapped(self._pin)
