"""Memory for the products of all layers, kept from one training step to the next.

A backward pass owns the buffer that it overwrites. Whoever needs products in the meantime makes them again in another one.
"""

import threading
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from jaxtyping import Float
from torch import Tensor

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention.packed import fits, new_flat
from addnorm.kernels.grouped_attention.problem import AttentionProblem

MOST_PASSES = 2
"""Backward passes that a thread may have under way: one inside another. A further one ends the oldest, which may have ended
without reaching the first layer."""


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


@dataclass
class BackwardPass:
    """A backward pass under way."""

    number: int
    products: Products
    """Slots of layers that were visited have the gradients of their scores."""
    top: int
    """The layer at which it began."""
    layer: int
    """The layer that must come next."""
    thread: int
    """The thread that began it."""
    weights: dict[int, Tensor] = field(default_factory=dict)
    """Of the visited layers, Float[Tensor, "#batch #heads term"]."""


class ProductBuffers:
    """The buffers of one model. Threads take turns, layer by layer. Copies of a model, also by pickle, begin with no buffer."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._numbers = count(1)
        self._shared: Products | None = None
        """Written by forward passes."""
        self._free: Products | None = None
        self._passes: dict[int, BackwardPass] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "ProductBuffers":
        return ProductBuffers()

    def __reduce__(self) -> tuple[type["ProductBuffers"], tuple[()]]:
        return ProductBuffers, ()

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        kept = (self._shared, self._free, *(under_way.products for under_way in self._passes.values()))
        return sum(products.flat.numel() * products.flat.element_size() for products in kept if products is not None)

    def new_number(self) -> int:
        """A number for a pass, forward or backward, that no other pass of this model has."""
        return next(self._numbers)

    def find(self, number: int, layers: int) -> Products | None:
        """A buffer that has the products of a forward pass's first layers."""
        for products in (self._shared, *(under_way.products for under_way in self._passes.values())):
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

    def begin(self, entries: int, problem: AttentionProblem, *, layer: int) -> BackwardPass:
        """A backward pass that begins at a layer, with the buffer of forward passes."""
        thread = threading.get_ident()
        own = [under_way for under_way in self._passes.values() if under_way.thread == thread]
        if len(own) >= MOST_PASSES:
            self.end(own[0])
        products = self.writable(entries, problem)
        self._shared = None
        begun = BackwardPass(self.new_number(), products, layer, layer, thread)
        self._passes[begun.number] = begun
        return begun

    def under_way(self, number: int, *, layer: int) -> BackwardPass:
        """The backward pass that has come to a layer.

        Raises:
            InputError: the layer above was not the last one that it visited.
        """
        found = self._passes.get(number)
        if found is None or found.layer != layer:
            raise InputError(
                f"attention: stored: expected backward to reach layer {layer} once, right after the layer above it in the "
                f"same pass, got other passes in between. Use attention='streaming' for backward passes inside one another."
            )
        return found

    def end(self, ended: BackwardPass) -> None:
        """Take a buffer back: for forward passes, or else for the next pass that needs one."""
        del self._passes[ended.number]
        if self._shared is None:
            self._shared = ended.products
        else:
            self._free = ended.products
