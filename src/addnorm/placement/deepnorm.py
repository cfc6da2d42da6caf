r"""DeepNorm: post-norm with a heavier stream, and smaller initial values.

    x <- N(alpha x + f(x))        if residual is add
    x <- N(write(alpha x, f(x)))        if residual is not add

alpha is (2 L)^(1/4). `write` is the residual's own way to join a branch's output to the stream.
Value, output and feed-forward matrices start smaller by (8 L)^(-1/4).

Why: each update changes the model by a bounded amount at any depth, so that post-norm trains 1000 layers deep.

Source: Wang et al. 2022, "DeepNet", arXiv:2203.00555, for models of one stack.
Differs from the source: the factors multiply this library's initial standard deviation, not Xavier's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from addnorm.placement import PlacementSpec, Sockets
from addnorm.reduction import Reduction
from addnorm.shape import Place


@dataclass(frozen=True, kw_only=True)
class DeepNorm(PlacementSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        alpha, eps = 4**0.25, 1e-5  # two layers, four branches
        return (
            Reduction(
                given={"depth": 2, "norm": {"kind": "rms", "eps": eps}},
                to={
                    "placement": "post",
                    "residual": {"kind": "scale", "alpha": 1 / alpha},
                    "norm": {"kind": "rms", "eps": eps / alpha**2},
                },
            ),
        )

    def sockets(self) -> Sockets:
        return Sockets(stream=True)

    def at(self, place: Place, places: Sequence[Place]) -> Sockets:
        return Sockets(stream=True, stream_factor=len(places) ** 0.25)

    def initial_gain(self, sites: int) -> float:
        return (4 * sites) ** -0.25
