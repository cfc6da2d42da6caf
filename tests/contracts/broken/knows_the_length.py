r"""Every embedding is told how long the sequence is, padding included.

    x_0 = embedding(tokens) + 1/s

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.position import Position, PositionSpec
from addnorm.shape import Shape

BREAKS = "ignores_padding"


@dataclass(frozen=True, kw_only=True)
class KnowsTheLength(PositionSpec):
    """A broken position."""

    def build(self, shape: Shape) -> "KnowsTheLengthPosition":
        return KnowsTheLengthPosition()


class KnowsTheLengthPosition(Position):
    def embed(self, x: Tensor, start: int) -> Tensor:
        wave = x.new_zeros(x.shape[-1])
        wave[0] = 1 / x.shape[1]
        return x + wave
