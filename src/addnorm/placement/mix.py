r"""Mixed placement: post-norm in the first layers, pre-norm in the others.

    x <- N(x + f(x)) in the first layers, x <- x + f(N(x)) in the others        if residual is add
    x <- N(write(x, f(x))) in the first layers, x <- write(x, f(N(x))) in the others        if residual is not add
    logits <- head(N(x_last))

The first layers are the setting `share` of all. `write` is the residual's own way to join a branch's output.

Why: pre-norm gives deep layers small gradients, post-norm early ones; each is used where it does well.

Source: Li et al. 2024, "Mix-LN", arXiv:2412.13795 (a quarter of the layers).
Differs from the source: nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from addnorm.fields import require
from addnorm.placement import PlacementSpec, Sockets
from addnorm.reduction import Reduction
from addnorm.shape import Place


@dataclass(frozen=True, kw_only=True)
class Mix(PlacementSpec):
    """Post-norm first, pre-norm then."""

    share: float = 0.25
    """Share of the layers that have post-norm, rounded down."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "share", 0 <= self.share <= 1, "a number from 0 to 1")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"share": 0.0}, to={"placement": "pre"}),
            Reduction(settings={"share": 1.0}, to={"placement": "post"}),
        )

    def sockets(self) -> Sockets:
        return Sockets(stream=self.share > 0, branch_input=self.share < 1, final=self.share < 1)

    def at(self, place: Place, places: Sequence[Place]) -> Sockets:
        depth = places[-1].layer + 1
        is_post = place.layer < int(self.share * depth)
        return Sockets(stream=is_post, branch_input=not is_post)
