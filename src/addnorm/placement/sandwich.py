r"""Sandwich norm: every branch is normalised going in and coming out.

    x <- x + N2(f(N1(x)))        if residual is add
    x <- write(x, N2(f(N1(x))))        if residual is not add
    logits <- head(N(x_last))

`write` is the residual's own way to join a branch's output to the stream.

Why: what each branch adds to the stream has a bounded size.

Source: Ding et al. 2021, "CogView", arXiv:2105.13290 §3.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from addnorm.placement import PlacementSpec, Sockets
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class Sandwich(PlacementSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(given={"norm": "none"}, to={"placement": "none"}),)

    def sockets(self) -> Sockets:
        return Sockets(branch_input=True, branch_output=True, final=True)
