r"""Admin: every entry of the stream has a learned factor where a branch joins, larger the more branches came before.

    x_{l+1} = omega_l * x_l + f_l(x_l)        omega_l: a vector of the width
    omega_l = sqrt(1 + v (l - 1)) at initialisation        v = residual.variance

Why: under post-norm every branch is a large part of the stream, so that small changes of parameters add up; a heavy stream
makes the model depend little on each branch at first, and training may change that. Meant for the placement `post`.

Source: Liu et al. 2020, "Understanding the Difficulty of Training Transformers", arXiv:2004.08249 §4.
Differs from the source: its profiling pass, which measures the variance of every branch's output on data before training, is
replaced by one number for all branches. 1 is the variance of a normalised stream and more than small matrices give.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.fields import require
from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Admin(ResidualSpec):
    """A learned factor of the stream per branch and entry."""

    variance: float = 1.0
    """Variance of a branch's output that the initial values assume, in units of the stream's; 0 is the plain residual."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "variance", self.variance >= 0, "at least 0")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"variance": 0.0}, to={"residual": "add"}),
            Reduction(parameters={"omega": 1.0}, to={"residual": "add"}),
            Reduction(
                parameters={"omega": 2.0},
                given={"placement": "post", "norm": {"kind": "rms", "eps": 4e-5}},
                to={"residual": {"kind": "scale", "alpha": 0.5}, "norm": {"kind": "rms", "eps": 1e-5}},
            ),
        )

    def build(self, shape: Shape, parts: Parts) -> "AdminResidual":
        return AdminResidual(shape.width, len(parts.sites), self.variance)


class AdminResidual(Residual):
    parameter_roles = {"omega": "vector"}

    def __init__(self, width: int, sites: int, variance: float) -> None:
        super().__init__()
        start = torch.sqrt(1 + variance * torch.arange(sites))
        self.omega = nn.Parameter(start[:, None].repeat(1, width))

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return self.omega[site.index].to(state.dtype) * state + y
