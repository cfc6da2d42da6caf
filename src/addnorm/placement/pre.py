r"""Pre-norm: every branch normalises its own input, and one norm closes the stream.

    x <- x + f(N(x))        if residual is add
    x <- write(x, f(N(x)))        if residual is not add
    logits <- head(N(x_last))

`write` is the residual's own way to join a branch's output to the stream.

Why: the stream is a clean sum, so gradients pass undamped; GPT-2 and everything after it.

Source: Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture", arXiv:2002.04745; Zhang (2026) §13.4.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from addnorm.placement import PlacementSpec, Sockets
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class Pre(PlacementSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def sockets(self) -> Sockets:
        return Sockets(branch_input=True, final=True)
