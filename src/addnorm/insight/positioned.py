"""A view of a model with another position encoding and the same parameters; the model is not changed."""

import copy
from typing import Any

from torch import Tensor

from addnorm.model.transformer import Transformer
from addnorm.position import Position


def with_position(model: Transformer, position: Position) -> Transformer:
    """Make the view. It shares the model's parameters."""
    # A shallow copy with a dictionary of modules of its own: replacing `position` there leaves the model's as it is,
    # and the parameters are the same objects.
    view = copy.copy(model)
    view._modules = {**model._modules, "position": position}
    return view


class Wrapped(Position):
    """Passes every call on to another position encoding; subclasses change a part of it.

    `prepare` returns a pair: the values that the inner encoding prepared, and those of `own`.
    """

    def __init__(self, inner: Position) -> None:
        super().__init__()
        self.inner = inner

    def embed(self, x: Tensor, start: int) -> Tensor:
        return self.inner.embed(x, start)

    def prepare(self, start: int, seq: int, like: Tensor) -> Any:
        return self.inner.prepare(start, seq, like), self.own(start, seq, like)

    def rotate(self, query: Tensor, key: Tensor, prepared: Any) -> tuple[Tensor, Tensor]:
        return self.inner.rotate(query, key, prepared[0])

    def score_bias(self, layer: int, prepared: Any) -> Any:
        return self.inner.score_bias(layer, prepared[0])

    # A model calls these two, of which the two above are the defaults: a subclass changes these.
    def rotate_layer(self, layer: int, query: Tensor, key: Tensor, prepared: Any) -> tuple[Tensor, Tensor]:
        return self.inner.rotate_layer(layer, query, key, prepared[0])

    def layer_bias(self, layer: int, x: Tensor, prepared: Any) -> Any:
        return self.inner.layer_bias(layer, x, prepared[0])

    def window(self, prepared: Any) -> int | None:
        return self.inner.window(prepared[0])

    def own(self, start: int, seq: int, like: Tensor) -> Any:
        """Compute what the subclass itself needs for the positions [start, start + seq)."""
        return None
