r"""Macaron: attention between two feed-forward networks, whose outputs are halved.

    x <- x + block.before * f1(x),  x <- x + a(x),  x <- x + block.after * f2(x)        if residual is add
    x <- write(x, block.before * f1(x)),  x <- write(x, a(x)),  x <- write(x, block.after * f2(x))        if residual is not add

f1, a, f2: the branches, with their norms. `write` is the residual's own way to join an output to the stream.

Why: a layer as one step of an ordinary differential equation whose two parts are split symmetrically, which has a smaller error
than one part after the other.

Source: Lu et al. 2019, "Understanding and Improving Transformer From a Multi-Particle Dynamic System Point of View",
arXiv:1906.02762; Gulati et al. 2020, Conformer, arXiv:2005.08100.
Differs from the source: both feed-forwards have the model's full `hidden`, as in Conformer; Lu et al. give each half of it.
"""

from dataclasses import dataclass

from addnorm.block import BlockSpec, BranchPlan, SitePlan, sequence
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class Macaron(BlockSpec):
    """Three branches per layer."""

    before: float = 0.5
    """Factor of the feed-forward before the attention."""
    after: float = 0.5
    """Factor of the feed-forward after the attention."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(settings={"before": 0.0, "after": 1.0}, to={"block": "sequential"}),)

    def sites(self, layer: int, depth: int) -> tuple[SitePlan, ...]:
        return sequence(
            BranchPlan(name="before", body="feedforward", factor=self.before),
            BranchPlan(name="attention", body="attention"),
            BranchPlan(name="feedforward", body="feedforward", factor=self.after),
        )
