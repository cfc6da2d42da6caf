r"""Scores summed with one learned weight of any sign per pair of layers.

    s_{m,i} = w_{m,i}/sqrt(d_k),        w_{m,m} = 1, w_{m,i} = scores.earlier at initialisation
    i > m - scores.window        if scores.window

Why: with earlier weights at zero it starts as the ordinary Transformer, so that it can be added to a trained model. The other
learned weights are positive, and none of them can start there.

Source: ours; the sum is that of He et al. 2020, "RealFormer", arXiv:2012.11747.
Differs from the source: the weights are learned. With earlier weights at one it starts as `sum`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from addnorm.reduction import Reduction
from addnorm.scores import WindowedScores, WindowedSpec
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Signed(WindowedSpec):
    """One learned weight per pair of layers."""

    earlier: float = 0.0
    """Weight of every earlier layer at the start; 1 is a plain sum."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"earlier": 0.0}, to={"scores": "own"}),
            Reduction(settings={"earlier": 1.0}, to={"scores": "sum"}),
        )

    def build(self, shape: Shape) -> "SignedScores":
        return SignedScores(shape, self)


class SignedScores(WindowedScores):
    parameter_roles = {"weight": "scalar"}

    def __init__(self, shape: Shape, spec: Signed) -> None:
        super().__init__(spec.window)
        self.scale = shape.head_dim**-0.5
        self.weight = nn.ParameterList(
            torch.cat([torch.full((self.terms(layer) - 1,), spec.earlier), torch.ones(1)])
            for layer in range(shape.depth)
        )

    def weights(self, layer: int) -> Float[Tensor, " terms"]:
        return self.scale * self.weight[layer]
