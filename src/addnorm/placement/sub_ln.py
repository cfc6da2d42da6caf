r"""Sub-LN: pre-norm, and a norm before the matrix with which each branch writes to the stream.

    x <- x + N2(g(N1(x))) W        f(x) = g(x) W: a branch and its output matrix        if residual is add
    x <- write(x, N2(g(N1(x))) W)        f(x) = g(x) W: a branch and its output matrix        if residual is not add
    logits <- head(N(x_last))

Value, output and feed-forward matrices start larger by sqrt(log(2 L)). `write` is the residual's own way to join a branch's
output to the stream.

Why: what enters an output matrix has one size, so that an update changes the model by a bounded amount at any depth, and the
initial values may be larger than with pre-norm alone.

Source: Wang et al. 2022, "Foundation Transformers" (Magneto), arXiv:2210.06423 §2, for models of one stack.
Differs from the source: the gain multiplies this library's initial standard deviation, not Xavier's; a model of one site takes
the gain of two, because log 1 is zero. In a gated attention unit the norm follows the gate.
"""

import math
from dataclasses import dataclass

from addnorm.placement import PlacementSpec, Sockets
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class SubLN(PlacementSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(given={"norm": "none"}, to={"placement": "none"}),)

    def sockets(self) -> Sockets:
        return Sockets(branch_input=True, inner=True, final=True)

    def initial_gain(self, sites: int) -> float:
        return math.log(max(sites, 2)) ** 0.5
