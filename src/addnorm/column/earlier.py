r"""Mixture-of-depths attention: every row also attends to what its own position was at earlier layers.

    y_r = (Σ_k exp(s Q_r . K_k) V_k + Σ_i exp(s Q_r . K_{i,r}) V_{i,r}) / Z_r
    Z_r = Σ_k exp(s Q_r . K_k) + Σ_i exp(s Q_r . K_{i,r})        i: earlier layers; s: the weight of the scores

one softmax over the sequence and the column of earlier layers, without parameters of its own.

Why: what shallow layers found is diluted by every later addition to the stream; here a head can read it where it was found. One
layer's key bias is effective, because its column elsewhere does not move with it; a common shift of all layers' keys is not.

Source: Zhu et al. 2026, "Mixture-of-Depths Attention", arXiv:2603.15619.
Differs from the source: attention gives keys and values alone; there feed-forward branches do too, by matrices of their own.
Keys of a column are normed and rotated as those of the sequence are, so that a score does not depend on the absolute position;
in the source's code they are not, while its queries are.
"""

from dataclasses import dataclass

from addnorm.column import Column, ColumnSpec
from addnorm.fields import require
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Earlier(ColumnSpec):
    """Keys and values of earlier layers."""

    most: int | None = None
    """Largest number of earlier layers, the nearest ones; None for all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "most", self.most is None or self.most >= 0, "at least 0, or null for all earlier layers")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        plain = {"column": "none"}
        return (
            Reduction(settings={"most": 0}, to=plain),
            Reduction(given={"depth": 1}, to=plain),
            Reduction(settings={"most": 1}, given={"depth": 2}, to={"column": "earlier"}),
        )

    def build(self, shape: Shape) -> "EarlierColumn | None":
        return None if self.most == 0 else EarlierColumn(self.most)


class EarlierColumn(Column):
    def __init__(self, most: int | None) -> None:
        super().__init__()
        self.most = most

    def sources(self, layer: int) -> tuple[int, ...]:
        return tuple(range(0 if self.most is None else max(0, layer - self.most), layer))
