"""A position that does what another one does, but for what a switch changes."""

from typing import Any

from torch import Tensor

from addnorm.position import Position


class Wrapped(Position):
    """Hands everything on to `inner`. What `prepare` returns is a pair: the inner one's, and the switch's own."""

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

    def own(self, start: int, seq: int, like: Tensor) -> Any:
        """What the switch itself needs for the positions [start, start + seq)."""
        return None
