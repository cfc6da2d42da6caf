r"""ReZero: every branch is scaled by its own learned scalar, zero at the start unless set.

    x_{l+1} = x_l + alpha_l * f_l(x_l),        alpha_l = residual.alpha_init at initialisation

Why: with scalars at zero the network starts as the identity, so gradients reach every layer at any depth.

Source: Bachlechner et al. 2020, "ReZero is All You Need", arXiv:2003.04887, eq. 1; De and Smith 2020, arXiv:2002.10444
(SkipInit: the same scalar, in networks without norms); Su (2020).
Differs from the source: nothing. Usually used with placement `none`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class ReZero(ResidualSpec):
    """One learned scalar per branch."""

    alpha_init: float = 0.0
    """Value of every scalar at the start; 1 is the plain residual."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"alpha_init": 1.0}, to={"residual": "add"}),
            Reduction(parameters={"alpha": 0.5}, to={"residual": {"kind": "scale", "alpha": 0.5}}),
        )

    def build(self, shape: Shape, parts: Parts) -> "ReZeroResidual":
        return ReZeroResidual(len(parts.sites), self.alpha_init)


class ReZeroResidual(Residual):
    parameter_roles = {"alpha": "scalar"}

    def __init__(self, sites: int, alpha_init: float) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((sites,), alpha_init))

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + self.alpha[site.index] * y
