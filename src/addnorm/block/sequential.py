r"""Sequential branches: a layer is attention, then a feed-forward network.

    x <- x + a(x),  x <- x + f(x)        if residual is add
    x <- write(x, a(x)),  x <- write(x, f(x))        if residual is not add

a and f: the branches, with their norms. `write` is the residual's own way to join an output to the stream.

Why: the feed-forward reads what the attention of the same layer has gathered.

Source: Vaswani et al. 2017, arXiv:1706.03762 §3.1.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from addnorm.block import BlockSpec, BranchPlan, SitePlan, sequence
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class Sequential(BlockSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def sites(self, layer: int, depth: int) -> tuple[SitePlan, ...]:
        return sequence(
            BranchPlan(name="attention", body="attention"), BranchPlan(name="feedforward", body="feedforward")
        )
