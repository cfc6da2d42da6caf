r"""Peri norm: sandwich norm, and norms on the embeddings and on the output.

    x_0 <- N(x_0)
    x <- x + N2(f(N1(x)))        if residual is add
    x <- write(x, N2(f(N1(x))))        if residual is not add
    logits <- head(N(x_last))

`write` is the residual's own way to join a branch's output to the stream.

Why: the stream's variance then grows linearly with depth at most, and activations stay small in long training.

Source: Kim et al. 2025, "Peri-LN", arXiv:2502.02732.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from addnorm.placement import PlacementSpec, Sockets
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class Peri(PlacementSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(given={"norm": "none"}, to={"placement": "none"}),)

    def sockets(self) -> Sockets:
        return Sockets(embedding=True, branch_input=True, branch_output=True, final=True)
