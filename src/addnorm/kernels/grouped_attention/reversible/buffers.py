"""Memory for one running sum of scores and for its gradient, kept from one training step to the next."""

import threading
from dataclasses import dataclass
from itertools import count
from typing import Any

from torch import Tensor

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention.packed import fits, new_flat
from addnorm.kernels.grouped_attention.problem import AttentionProblem

MOST_GRADIENTS = 2
"""Backward passes that a thread may have under way: one inside another. A further one ends the oldest, which may have ended
without reaching the first layer."""


@dataclass
class GradientSum:
    """The gradient of the running sum during one backward pass."""

    number: int
    """Number of the backward pass."""
    values: Tensor
    """Flat."""
    layer: int
    """The layer that must come next."""
    thread: int
    """The thread that began it."""


class ScoreBuffers:
    """The buffers of one model. Copies of a model, also by pickle, begin with empty ones.

    A buffer serves any number of passes: `holds` tells whose scores it has, and a pass that finds another's computes its own
    again. Threads take turns, layer by layer.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.holds: tuple[int, int] | None = None
        """Number of the forward pass whose scores are summed, and how many of its layers; None while they are changed, so
        that an exception leaves no sum that is half of one layer."""
        self._numbers = count(1)
        self._total: Tensor | None = None
        self._gradients: dict[int, GradientSum] = {}
        self._free: Tensor | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "ScoreBuffers":
        return ScoreBuffers()

    def __reduce__(self) -> tuple[type["ScoreBuffers"], tuple[()]]:
        return ScoreBuffers, ()

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        kept = (self._total, self._free, *(under_way.values for under_way in self._gradients.values()))
        return sum(flat.numel() * flat.element_size() for flat in kept if flat is not None)

    def new_number(self) -> int:
        """A number for a pass, forward or backward, that no other pass of this model has."""
        return next(self._numbers)

    def total(self, entries: int, problem: AttentionProblem) -> Tensor:
        """The flat buffer of the running sum, of at least `entries`. A larger one is empty."""
        if not fits(self._total, entries, problem):
            self.holds = self._total = None  # the old one goes before the new one comes
            self._total = new_flat(entries, problem)
        assert self._total is not None
        return self._total

    def begin_gradient(self, entries: int, problem: AttentionProblem, *, layer: int) -> GradientSum:
        """A gradient for a backward pass that begins at a layer; its values are not initialised."""
        thread = threading.get_ident()
        own = [under_way for under_way in self._gradients.values() if under_way.thread == thread]
        if len(own) >= MOST_GRADIENTS:
            self.end_gradient(own[0])
        values, self._free = self._free, None
        if values is None or not fits(values, entries, problem):
            del values
            values = new_flat(entries, problem)
        begun = GradientSum(self.new_number(), values, layer, thread)
        self._gradients[begun.number] = begun
        return begun

    def gradient(self, number: int, *, layer: int) -> GradientSum:
        """The gradient of a backward pass that has come to a layer.

        Raises:
            InputError: the layer above was not the last one, so the gradient is not that of this pass.
        """
        under_way = self._gradients.get(number)
        if under_way is None or under_way.layer != layer:
            raise InputError(
                f"attention: running: expected backward to reach layer {layer} once, right after the layer above it in the "
                f"same pass, got other passes in between. Use attention='streaming' for backward passes inside one another."
            )
        return under_way

    def end_gradient(self, ended: GradientSum) -> None:
        """Take a gradient back; one buffer is kept for the next pass."""
        del self._gradients[ended.number]
        self._free = ended.values
