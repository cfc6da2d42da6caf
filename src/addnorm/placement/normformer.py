r"""NormFormer: pre-norm, and a norm on the output of every attention.

    x <- x + N2(f(N1(x))) at attention, x <- x + f(N1(x)) at feed-forward        if residual is add
    x <- write(x, N2(f(N1(x)))) at attention, x <- write(x, f(N1(x))) at feed-forward        if residual is not add
    logits <- head(N(x_last))

`write` is the residual's own way to join a branch's output to the stream.

Why: pre-norm gives early layers larger gradients than late ones, which a norm after the attention evens out.

Source: Shleifer et al. 2021, "NormFormer", arXiv:2110.09456.
Differs from the source: no norm inside the feed-forward; its scaled heads are the setting `attended: head_scale`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from addnorm.placement import PlacementSpec, Sockets
from addnorm.reduction import Reduction
from addnorm.shape import Place


@dataclass(frozen=True, kw_only=True)
class NormFormer(PlacementSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(given={"norm": "none"}, to={"placement": "none"}),)

    def sockets(self) -> Sockets:
        return Sockets(branch_input=True, branch_output=True, final=True)

    def at(self, place: Place, places: Sequence[Place]) -> Sockets:
        return Sockets(branch_input=True, branch_output=place.role != "feedforward", final=True)
