r"""Depth-scaled sum: stream and branch are added with weights whose squares add up to one.

    x <- sqrt((k - 1) / k) x + f(x) / sqrt(k)        k: number of outputs so far, the embeddings and this one included

Why: if outputs are uncorrelated and of equal size, so is the stream at every depth, where the plain sum grows as sqrt(k). Up to
the factor sqrt(k) it is the plain sum: under norms that read the stream, nothing but the size of the stream changes.

Source: Reflection AI, Beam, `depth_scaled_residual_add` (norms on inputs and outputs of branches) in Transformers,
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/beam/modeling_beam.py.
Differs from the source: nothing. The eps of a norm counts as much at every depth, where under the plain sum it fades.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class DepthScaled(ResidualSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return tuple(
            Reduction(given={"placement": placement}, to={"residual": "add"}, equal="after the next norm")
            for placement in ("pre", "sandwich")
        )

    def build(self, shape: Shape, parts: Parts) -> "DepthScaledResidual":
        return DepthScaledResidual()


class DepthScaledResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        outputs = site.index + 2  # the embeddings are the first: the first branch joins with sqrt(1/2), not with 1
        return ((outputs - 1) / outputs) ** 0.5 * state + y / outputs**0.5
