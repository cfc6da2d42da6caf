r"""Hybrid norm: the stream is normalised once per layer, between attention and feed-forward.

    x <- N(x + attention(x))        if residual is add
    x <- x + feedforward(x)        if residual is add
    x <- N(write(x, attention(x)))        if residual is not add
    x <- write(x, feedforward(x))        if residual is not add
    logits <- head(N(x_last))

Why: queries, keys and values get norms of their own, so that attention needs none on its input, and the feed-forward has the
strong norm of post-norm.

Source: Zhuo et al. 2025, "HybridNorm", arXiv:2503.04598.
Differs from the source: its norms of queries and keys are the model's setting `qk_norm`; values have none. In a layer
of parallel branches the norm follows both.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from addnorm.placement import PlacementSpec, Sockets
from addnorm.reduction import Reduction
from addnorm.shape import Place


@dataclass(frozen=True, kw_only=True)
class Hybrid(PlacementSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(given={"norm": "none"}, to={"placement": "none"}),)

    def sockets(self) -> Sockets:
        return Sockets(stream=True, final=True)

    def at(self, place: Place, places: Sequence[Place]) -> Sockets:
        return Sockets(stream=place.role != "feedforward")
