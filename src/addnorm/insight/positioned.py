"""A view of a model that has another position: the same parameters, and the model stays as it is."""

import copy
from typing import Any

from torch import Tensor

from addnorm.model.transformer import Transformer
from addnorm.position import Position


def with_position(model: Transformer, position: Position) -> Transformer:
    """The view. Whatever is done to its parameters is done to the model's."""
    view = copy.copy(model)
    view._modules = {**model._modules, "position": position}
    return view


class Wrapped(Position):
    """Does what another position does; subclasses change a part of it.

    What `prepare` returns is a pair: what the inner position prepared, and what `own` did.
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

    def window(self, prepared: Any) -> int | None:
        return self.inner.window(prepared[0])

    def own(self, start: int, seq: int, like: Tensor) -> Any:
        """What the subclass itself needs for the positions [start, start + seq)."""
        return None
