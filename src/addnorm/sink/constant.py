r"""The same sink for every head, which is not learned; with 0 the softmax plus one.

    A_k = exp(s_k) / (exp(sink.value) + Σ_j exp(s_j))

Why: attention to nothing without a parameter.

Source: Miller 2023, "Attention is off by one", https://www.evanmiller.org/attention-is-off-by-one.html (value 0).
Differs from the source: nothing.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from addnorm.reduction import Reduction
from addnorm.shape import Shape
from addnorm.sink import Sinks, SinkSpec


@dataclass(frozen=True, kw_only=True)
class Constant(SinkSpec):
    """One number."""

    value: float = 0.0
    """The sink."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(settings={"value": -800.0}, to={"sink": "none"}),)

    def build(self, shape: Shape) -> "ConstantSinks":
        return ConstantSinks(self.value, shape.heads)


class ConstantSinks(Sinks):
    sinks: Tensor

    def __init__(self, value: float, heads: int) -> None:
        super().__init__()
        self.register_buffer("sinks", torch.full((heads,), value))

    def logits(self, layer: int) -> Tensor:
        return self.sinks
