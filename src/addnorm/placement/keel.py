r"""Keel: post-norm with a heavy stream and one more norm before each branch.

    x <- N(alpha x + f(N1(x)))        if residual is add
    x <- N(write(alpha x, f(N1(x))))        if residual is not add

alpha is the number of branches, or the setting `alpha`. `write` is the residual's own way to join a branch's output.

Why: a stream that outweighs the branch passes gradients through post-norm at any depth, without special initial values.

Source: Chen and Wei 2026, "Post-LayerNorm Is Back", arXiv:2601.19895.
Differs from the source: nothing known; alpha is a setting.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from addnorm.fields import require
from addnorm.placement import PlacementSpec, Sockets
from addnorm.reduction import Reduction
from addnorm.shape import Place


@dataclass(frozen=True, kw_only=True)
class Keel(PlacementSpec):
    """Norms on branch inputs and on a heavy stream."""

    alpha: float | None = None
    """Factor of the stream; None for the number of branches."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "alpha", self.alpha is None or self.alpha > 0, "a positive number, or null")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(
                settings={"alpha": 4.0},
                to={"placement": {"kind": "keel", "alpha": 1.0}, "residual": {"kind": "scale", "alpha": 0.25}},
                equal="after the next norm",
            ),
        )

    def sockets(self) -> Sockets:
        return Sockets(branch_input=True, stream=True)

    def at(self, place: Place, places: Sequence[Place]) -> Sockets:
        alpha = float(len(places)) if self.alpha is None else self.alpha
        return Sockets(branch_input=True, stream=True, stream_factor=alpha)
