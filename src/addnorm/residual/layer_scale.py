r"""LayerScale: every entry of a branch's output has a learned factor that starts small.

    x_{l+1} = x_l + lambda_l * f_l(x_l)        lambda_l: a vector of the width

lambda starts at 0.1 up to 18 layers, at 1e-5 up to 24, at 1e-6 beyond, or at residual.start.

Why: deep models start near the identity, and each channel decides how much of a branch it takes. After training, lambda folds
into the matrix that writes to the stream, unless a norm stands between.

Source: Touvron et al. 2021, "Going deeper with Image Transformers", arXiv:2103.17239 §2.
Differs from the source: nothing.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class LayerScale(ResidualSpec):
    """A learned factor per branch and entry."""

    start: float | None = None
    """Value of every factor at the start; None for the source's, by depth."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"start": 1.0}, to={"residual": "add"}),
            Reduction(parameters={"factor": 0.5}, to={"residual": {"kind": "scale", "alpha": 0.5}}),
        )

    def build(self, shape: Shape, parts: Parts) -> "LayerScaleResidual":
        by_depth = 0.1 if shape.depth <= 18 else 1e-5 if shape.depth <= 24 else 1e-6
        return LayerScaleResidual(shape.width, len(parts.sites), by_depth if self.start is None else self.start)


class LayerScaleResidual(Residual):
    parameter_roles = {"factor": "vector"}

    def __init__(self, width: int, sites: int, start: float) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((sites, width), start))

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + self.factor[site.index] * y
