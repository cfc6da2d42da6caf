r"""No column: a row of attention is over the sequence alone.

    A_k = exp(s_k) / Σ_j exp(s_j)

Why: the reference; earlier layers reach this one through the stream alone.

Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, eq. 1.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from addnorm.column import ColumnSpec
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Nothing(ColumnSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def build(self, shape: Shape) -> None:
        return None
