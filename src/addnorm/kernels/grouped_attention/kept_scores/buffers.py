"""Memory for kept scores and their gradients, reused from one training step to the next.

Forward passes may interleave, because each can make its scores again. A backward pass owns the buffer that it overwrites.
"""

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar

from jaxtyping import Float
from torch import Tensor

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention.packed import fits, new_flat
from addnorm.kernels.grouped_attention.problem import AttentionProblem

MOST_PASSES = 2
"""Backward passes that a thread may have under way: one inside another. A further one ends the oldest, which may have ended
without reaching the first layer."""


@dataclass(kw_only=True)
class BackwardPass:
    """A backward pass under way."""

    number: int
    layer: int
    """The layer that must come next; -1 while one is computed, so that an exception leaves a pass that no layer accepts."""
    thread: int
    """The thread that began it."""


Pass = TypeVar("Pass", bound=BackwardPass)


class KeptBuffers(ABC, Generic[Pass]):
    """The buffers of one model. Threads take turns, layer by layer. Copies of a model, by pickle too, begin with empty ones."""

    impl: str
    """Name of the implementation, for messages."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._numbers = count(1)
        self._passes: dict[int, Pass] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "KeptBuffers[Pass]":
        return type(self)()

    def __reduce__(self) -> tuple[type["KeptBuffers[Pass]"], tuple[()]]:
        return type(self), ()

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(flat.numel() * flat.element_size() for flat in self._flat_buffers())

    @abstractmethod
    def _flat_buffers(self) -> list[Tensor]:
        """All buffers that are held."""

    @abstractmethod
    def end(self, ended: Pass) -> None:
        """Take a backward pass's buffer back."""

    def new_number(self) -> int:
        """A number for a pass, forward or backward, that no other pass of this model has."""
        return next(self._numbers)

    def under_way(self, number: int, *, layer: int) -> Pass:
        """The backward pass that has come to a layer.

        Raises:
            InputError: the layer above was not the last one that it visited, so that the kept gradient is another pass's.
        """
        begun = self._passes.get(number)
        if begun is None or begun.layer != layer:
            raise InputError(
                f"attention: {self.impl}: expected backward to reach layer {layer} once, right after the layer above it in the "
                f"same pass, got other passes in between. Use attention='streaming' for backward passes inside one another."
            )
        return begun

    def _make_room(self) -> int:
        """End this thread's oldest backward pass if it has too many; return the thread's number."""
        # A pass that autograd stopped before the first layer (a gradient of some layers alone) never ends itself. Another
        # thread's passes are left alone: they may be running now.
        thread = threading.get_ident()
        own = [begun for begun in self._passes.values() if begun.thread == thread]
        if len(own) >= MOST_PASSES:
            self.end(own[0])
        return thread


@dataclass(kw_only=True)
class GradientSum(BackwardPass):
    """A backward pass and the gradient of its running sum."""

    values: Tensor
    """Flat."""


class ScoreBuffers(KeptBuffers[GradientSum]):
    """The running sum of one model, and its gradients.

    The sum serves any number of passes: `holds` tells whose scores it has, and a pass that finds another's computes its own
    again.
    """

    impl = "running"

    def __init__(self) -> None:
        super().__init__()
        self.holds: tuple[int, int] | None = None
        """Number of the forward pass whose scores are summed, and how many of its layers; None while they are changed, so
        that an exception leaves no sum that is half of one layer."""
        self._total: Tensor | None = None
        self._free: Tensor | None = None

    def _flat_buffers(self) -> list[Tensor]:
        held = (self._total, self._free, *(begun.values for begun in self._passes.values()))
        return [flat for flat in held if flat is not None]

    def total(self, entries: int, problem: AttentionProblem) -> Tensor:
        """The flat buffer of the running sum, of at least `entries`. A larger one is empty."""
        if not fits(self._total, entries, problem):
            self.holds = self._total = None  # the old one goes before the new one comes
            self._total = new_flat(entries, problem)
        assert self._total is not None
        return self._total

    def begin(self, entries: int, problem: AttentionProblem, *, layer: int) -> GradientSum:
        """A backward pass that begins at a layer; the values of its gradient are not initialised."""
        thread = self._make_room()
        values, self._free = self._free, None
        if values is None or not fits(values, entries, problem):
            del values
            values = new_flat(entries, problem)
        begun = GradientSum(number=self.new_number(), layer=layer, thread=thread, values=values)
        self._passes[begun.number] = begun
        return begun

    def end(self, ended: GradientSum) -> None:
        """Take a gradient back; one buffer is kept for the next pass."""
        del self._passes[ended.number]
        self._free = ended.values


@dataclass
class Products:
    """A buffer, and whose products its first slots have."""

    flat: Tensor
    number: int = 0
    """Of the forward pass; 0 for none."""
    layers: int = 0
    """Number of layers whose slots have products."""

    def slots(self, depth: int, entries: int) -> Float[Tensor, "layer entry"]:
        """View the buffer as one slot per layer."""
        return self.flat[: depth * entries].view(depth, entries)

    def has(self, number: int, layers: int) -> bool:
        """True if it has the products of a forward pass's first layers."""
        return self.number == number and self.layers >= layers


@dataclass(kw_only=True)
class SlotGradients(BackwardPass):
    """A backward pass that turns products into gradients of scores, slot by slot."""

    products: Products
    """Slots of layers that were visited have the gradients of their scores."""
    top: int
    """The layer at which it began."""
    weights: dict[int, Tensor] = field(default_factory=dict)
    """Of the visited layers, Float[Tensor, "#batch #heads term"]."""


class ProductBuffers(KeptBuffers[SlotGradients]):
    """The products of all layers of one model."""

    impl = "stored"

    def __init__(self) -> None:
        super().__init__()
        self._shared: Products | None = None
        """Written by forward passes."""
        self._free: Products | None = None

    def _flat_buffers(self) -> list[Tensor]:
        return [products.flat for products in (*self._readable(), self._free) if products is not None]

    def _readable(self) -> list[Products | None]:
        return [self._shared, *(begun.products for begun in self._passes.values())]

    def find(self, number: int, layers: int) -> Products | None:
        """A buffer that has the products of a forward pass's first layers."""
        for products in self._readable():
            if products is not None and products.has(number, layers):
                return products
        return None

    def writable(self, entries: int, problem: AttentionProblem) -> Products:
        """The buffer of forward passes, of at least `entries`; it may have any pass's products."""
        if self._shared is None:
            self._shared, self._free = self._free, None
        if self._shared is None or not fits(self._shared.flat, entries, problem):
            self._shared = None  # the old one goes before the new one comes
            self._shared = Products(new_flat(entries, problem))
        return self._shared

    def begin(self, entries: int, problem: AttentionProblem, *, layer: int) -> SlotGradients:
        """A backward pass that begins at a layer, with the buffer of forward passes."""
        thread = self._make_room()
        products = self.writable(entries, problem)
        self._shared = None  # what comes in between makes its products in another buffer
        begun = SlotGradients(number=self.new_number(), layer=layer, thread=thread, products=products, top=layer)
        self._passes[begun.number] = begun
        return begun

    def end(self, ended: SlotGradients) -> None:
        """Take a buffer back: for forward passes, or else for the next pass that needs one."""
        del self._passes[ended.number]
        if self._shared is None:
            self._shared = ended.products
        else:
            self._free = ended.products
