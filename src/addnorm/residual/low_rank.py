r"""Low-rank residual: beside the stream itself, a narrow linear path around every branch.

    x_{l+1} = x_l + f_l(x_l) + N_l(B_l A_l x_l)        A: rank x width; B = 0 at initialisation
    x_{l+1} = x_l + f_l(x_l) + B_l A_l x_l        if not residual.normalised

Why: the identity is one linear map among many; a few numbers per branch learn a better one.

Source: Menghani et al. 2024, "LAuReL", arXiv:2411.07501, the low-rank form.
Differs from the source: its factor of the branch is `rezero`'s, and is left out here. With the norm a small B counts as much
as a large one once it is above the norm's eps.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.fields import require
from addnorm.kernels import without_autocast
from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class LowRank(ResidualSpec):
    """A learned low-rank map beside the identity."""

    rank: int = 16
    """Rank of the maps."""
    normalised: bool = True
    """True for a norm on what the maps return."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "rank", self.rank >= 1, "at least 1")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(parameters={"up": 0.0, "bias": 0.0}, to={"residual": "add"}),
            Reduction(settings={"normalised": False}, parameters={"up": 0.0}, to={"residual": "add"}),
        )

    def build(self, shape: Shape, parts: Parts) -> "LowRankResidual":
        return LowRankResidual(shape.width, parts, self)


class LowRankResidual(Residual):
    parameter_roles = {"down": "hidden_matrix", "up": "hidden_matrix"}

    def __init__(self, width: int, parts: Parts, spec: LowRank) -> None:
        super().__init__()
        sites, self.std = len(parts.sites), parts.std
        self.down = nn.Parameter(torch.empty(sites, spec.rank, width))
        self.up = nn.Parameter(torch.zeros(sites, width, spec.rank))
        self.norms = nn.ModuleList(parts.norm(width) if spec.normalised else nn.Identity() for _ in parts.sites)

    def initialise(self, name: str, generator: torch.Generator) -> None:
        if name == "down":
            nn.init.normal_(self.down, std=self.std, generator=generator)

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        with without_autocast(state):
            narrow = F.linear(state, self.down[site.index].to(state.dtype))
            path = F.linear(narrow, self.up[site.index].to(state.dtype))
        return state + y + self.norms[site.index](path)
