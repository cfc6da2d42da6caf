r"""No norms anywhere.

    x <- x + f(x)        if residual is add
    x <- write(x, f(x))        if residual is not add

`write` is the residual's own way to join a branch's output to the stream.

Why: residuals that control their own size, such as ReZero, are usually used so.

Source: Bachlechner et al. 2020, "ReZero is All You Need", arXiv:2003.04887.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from addnorm.placement import PlacementSpec, Sockets
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class Bare(PlacementSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def sockets(self) -> Sockets:
        return Sockets()
