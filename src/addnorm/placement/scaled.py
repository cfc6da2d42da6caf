r"""Scaled pre-norm: the norm on a branch's input is smaller in deeper layers.

    x <- x + f(N(x))        if residual is add
    x <- write(x, f(N(x)))        if residual is not add
    N(x) = norm(x) / sqrt(m)        m: layer, from 1
    logits <- head(N(x_last))

Why: under pre-norm the stream's variance grows with depth until deep layers hardly change it; the factor keeps it from growing
exponentially.

Source: Sun et al. 2025, "The Curse of Depth", arXiv:2502.05795.
Differs from the source: nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from addnorm.placement import PlacementSpec, Sockets
from addnorm.reduction import Reduction
from addnorm.shape import Place


@dataclass(frozen=True, kw_only=True)
class Scaled(PlacementSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(given={"depth": 1}, to={"placement": "pre"}),)

    def sockets(self) -> Sockets:
        return Sockets(branch_input=True, final=True)

    def at(self, place: Place, places: Sequence[Place]) -> Sockets:
        return Sockets(branch_input=True, input_factor=(place.layer + 1) ** -0.5)
