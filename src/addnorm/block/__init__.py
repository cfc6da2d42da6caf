r"""Room of the blocks: which branches a layer has, and where they read and write the stream.

A layer is a list of sites. At each site the residual reads the stream once and writes once; the outputs of the branches of a
site are added up before they are written. A sibling names the branches; the model builds them, with their norms:

    y = sum_b factor_b * dropout(N_out,b(body_b(N_in,b(h))))        h: what the residual reads at the site

Example: attention alone in the first layer, as a plug-in file

    @dataclass(frozen=True, kw_only=True)
    class Late(BlockSpec):
        @classmethod
        def reduces_to(cls) -> tuple[Reduction, ...]:
            return ()

        def sites(self, layer: int, depth: int) -> tuple[SitePlan, ...]:
            attention, feedforward = sequence(
                BranchPlan(name="attention", body="attention"), BranchPlan(name="feedforward", body="feedforward")
            )
            return (attention, feedforward) if layer else (attention,)
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

from addnorm.catalogue import Spec
from addnorm.kernels.grouped_attention import Normalisation
from addnorm.reduction import Reducible
from addnorm.shape import Role, Shape

__all__ = ["BlockSpec", "BodyName", "BranchPlan", "SitePlan", "sequence"]

BodyName = Literal["attention", "feedforward", "gated_attention_unit", "token_table"]
"""Computation of a branch.

Example:
    >>> body: BodyName = "attention"
    >>> BranchPlan(name="attention", body=body).attends
    True
"""


@dataclass(frozen=True, kw_only=True)
class BranchPlan:
    """One branch of a layer.

    Example:
        >>> BranchPlan(name="feedforward", body="feedforward", factor=0.5).attends
        False
    """

    name: str
    """Name of its parameters in the layer; branches of one name start equal in all blocks."""
    body: BodyName
    """The computation between its norms."""
    factor: float = 1.0
    """Factor of its output."""
    entries: int = 0
    """Entries of a token's row, of a token table."""

    @property
    def attends(self) -> bool:
        """True if the body attends to other positions."""
        return self.body in ("attention", "gated_attention_unit")


@dataclass(frozen=True, kw_only=True)
class SitePlan:
    """The branches that read the stream together and whose outputs are written together.

    Example:
        >>> branches = (BranchPlan(name="attention", body="attention"), BranchPlan(name="feedforward", body="feedforward"))
        >>> SitePlan(role="parallel", branches=branches, input_norm="shared").attends
        True
    """

    role: Role
    """Kind of the site, by which residuals and placements tell sites apart."""
    branches: tuple[BranchPlan, ...]
    """One or more, at most one of which attends."""
    input_norm: Literal["own", "shared"] = "own"
    """A norm on the input of every branch, or the first branch's for all of them."""

    @property
    def attends(self) -> bool:
        """True if one of the branches attends."""
        return any(branch.attends for branch in self.branches)


def sequence(*branches: BranchPlan) -> tuple[SitePlan, ...]:
    """Give every branch a site of its own, with the role of its body.

    Example:
        >>> plans = sequence(
        ...     BranchPlan(name="attention", body="attention"), BranchPlan(name="feedforward", body="feedforward")
        ... )
        >>> [plan.role for plan in plans]
        ['attention', 'feedforward']
    """
    return tuple(
        SitePlan(role="attention" if branch.attends else "feedforward", branches=(branch,)) for branch in branches
    )


@dataclass(frozen=True, kw_only=True)
class BlockSpec(Reducible, Spec):
    """Base of every block's specification.

    Example:
        >>> from addnorm.block.parallel import Parallel
        >>> [plan.role for plan in Parallel().sites(layer=0, depth=2)]
        ['parallel']
    """

    @abstractmethod
    def sites(self, layer: int, depth: int) -> tuple[SitePlan, ...]:
        """The sites of one layer, in the order in which they meet the stream.

        Args:
            layer: 0-based.
            depth: number of layers.
        """

    def attention_shape(self, shape: Shape, attentions: int) -> Shape:
        """The sizes for scores, positions and q/k biases, for which every attention counts as a layer."""
        return replace(shape, depth=attentions)

    def normalises_by(self) -> Normalisation | None:
        """Function from scores to attention that the block's own settings choose; None for the model's `normalisation`."""
        return None

    def refuses_separate_reads(self) -> str | None:
        """Reason why queries, keys and values must read one input; None if they may differ."""
        return None
