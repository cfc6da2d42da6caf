r"""ResFormer and SVFormer: the first layer's values join those of every later layer, or replace them.

    v_l <- values.own * v_l + values.first * v_1        if values.weights is fixed
    v_l <- lambda_{l,1} v_l + lambda_{l,2} v_1        if values.weights is learned
    lambda_{l,1} = values.own,  lambda_{l,2} = values.first  at initialisation        if values.weights is learned
    v_l = v_1        if values.weights is shared

Why: what the first layer reads of each token stays within reach of every later attention, which eases over-smoothing and
attention that concentrates on few tokens. `shared` saves the value matrices of all layers but the first.

Source: Zhou et al. 2024, "Value Residual Learning", arXiv:2410.17897 (ResFormer; `shared`: SVFormer).
Differs from the source: nothing; a cache keeps the joined values of every layer, also those that `shared` makes equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from addnorm.reduction import Reduction
from addnorm.shape import Shape
from addnorm.values import Coefficients, Values, ValuesSpec


@dataclass(frozen=True, kw_only=True)
class First(ValuesSpec):
    """A weighted sum of a layer's own values and the first layer's."""

    weights: Literal["fixed", "learned", "shared"] = "fixed"
    """Two numbers for all layers; two learned numbers per layer that start there; or the first layer's values alone."""
    own: float = 0.5
    """Weight of a layer's own values; not used with `shared`."""
    first: float = 0.5
    """Weight of the first layer's values; not used with `shared`."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"own": 1.0, "first": 0.0}, to={"values": "own"}),
            Reduction(settings={"weights": "learned"}, parameters={"own": 1.0, "first": 0.0}, to={"values": "own"}),
            Reduction(settings={"weights": "learned"}, to={"values": "first"}),
            Reduction(settings={"own": 0.0, "first": 1.0}, to={"values": {"kind": "first", "weights": "shared"}}),
            Reduction(given={"depth": 1}, to={"values": "own"}),
        )

    def projects(self, layer: int) -> bool:
        return layer == 0 or self.weights != "shared"

    def build(self, shape: Shape, *, vocab: int, std: float) -> "FirstValues":
        return FirstValues(self, shape.depth)


class FirstValues(Values):
    parameter_roles = {"own": "scalar", "first": "scalar"}

    def __init__(self, spec: First, depth: int) -> None:
        super().__init__()
        self.spec = spec
        later = depth - 1 if spec.weights == "learned" else 0
        self.own = nn.Parameter(torch.full((later,), spec.own)) if later else None
        self.first = nn.Parameter(torch.full((later,), spec.first)) if later else None

    def sources(self, layer: int) -> tuple[int, ...]:
        return (0,) if layer else ()

    def join(self, layer: int, own: Tensor | None, earlier: Sequence[Tensor], x: Tensor, tokens: Tensor) -> Tensor:
        if own is None:
            return earlier[0]
        if not layer:
            return own
        if self.own is None or self.first is None:
            return self.spec.own * own + self.spec.first * earlier[0]
        joined = self.own[layer - 1] * own + self.first[layer - 1] * earlier[0]
        return joined.to(own.dtype)

    def coefficients(self) -> Coefficients:
        learned = {"own": self.own, "first": self.first}
        return {
            name: (list(range(1, parameter.numel() + 1)), parameter.detach())
            for name, parameter in learned.items()
            if parameter is not None
        }
