r"""Affine residual: stream and branch are shifted and scaled, entry by entry, before they are added.

    x <- (x + r) * s + (f(x) + h) * t        r = h = 0,  s = t = 1 at initialisation

r, s, h and t are four vectors per branch.

Why: every entry may forget the stream, or mute the branch, at every depth. Of both shifts r * s + h * t alone matters, so that
one vector of the two is redundant; and under a norm that reads the stream, a common factor of s and t is.

Source: Zyphra, Zaya, `ZayaResidualScaling` in Transformers,
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/zaya/modeling_zaya.py.
Differs from the source: the stream has the model's dtype, in the source float32.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Affine(ResidualSpec):
    """Four vectors per branch."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        unshifted = {"stream_shift": 0.0, "output_shift": 0.0}
        return (
            Reduction(to={"residual": "add"}),
            Reduction(
                parameters=unshifted | {"stream_scale": 1.0, "output_scale": 0.5},
                to={"residual": {"kind": "scale", "alpha": 0.5}},
            ),
            Reduction(
                parameters=unshifted | {"stream_scale": 0.75, "output_scale": 1.0},
                to={"residual": "stream_weight"},
                theirs={"weight": 0.75},
            ),
            Reduction(  # both shifts are one: r s + h t = 0
                parameters={"stream_shift": 0.25, "stream_scale": 1.0, "output_shift": -0.25, "output_scale": 1.0},
                to={"residual": "add"},
            ),
        )

    def build(self, shape: Shape, parts: Parts) -> "AffineResidual":
        return AffineResidual(shape.width, len(parts.sites))


class AffineResidual(Residual):
    parameter_roles = {
        "stream_shift": "bias",
        "stream_scale": "vector",
        "output_shift": "bias",
        "output_scale": "vector",
    }

    def __init__(self, width: int, sites: int) -> None:
        super().__init__()
        self.stream_shift = nn.Parameter(torch.zeros(sites, width))
        self.stream_scale = nn.Parameter(torch.ones(sites, width))
        self.output_shift = nn.Parameter(torch.zeros(sites, width))
        self.output_scale = nn.Parameter(torch.ones(sites, width))

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        at = site.index
        kept = (state + self.stream_shift[at]) * self.stream_scale[at]
        return kept + (y + self.output_shift[at]) * self.output_scale[at]
