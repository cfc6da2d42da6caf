r"""Post-norm: the stream itself is normalised after every branch.

    x_0 <- N(x_0)        if placement.embedding
    x <- N(x + f(x))        if residual is add
    x <- N(write(x, f(x)))        if residual is not add

`write` is the residual's own way to join a branch's output to the stream.

Why: the original Transformer, GPT-1 and BERT. Its gradients shrink towards the first layers, which makes deep models and
large learning rates difficult; when it trains, its final loss is good.

Source: Vaswani et al. 2017, arXiv:1706.03762; Su (2020); Zhang (2026) §13.4.
Differs from the source: nothing. It normalises whatever the residual's write returns as the stream.
"""

from dataclasses import dataclass

from addnorm.placement import PlacementSpec, Sockets
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class Post(PlacementSpec):
    """Norms on the stream."""

    embedding: bool = False
    """Also a norm on the embeddings, as BERT has."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(settings={"embedding": False}, given={"norm": "none"}, to={"placement": "none"}),)

    def sockets(self) -> Sockets:
        return Sockets(stream=True, embedding=self.embedding)
