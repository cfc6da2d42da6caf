r"""No sink: each row of attention adds up to one.

    A_k = exp(s_k) / Σ_j exp(s_j)

Why: the reference; with it a common shift of all keys, and the value bias, are redundant.

Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, eq. 1.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from addnorm.reduction import Reduction
from addnorm.shape import Shape
from addnorm.sink import SinkSpec


@dataclass(frozen=True, kw_only=True)
class Nothing(SinkSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def build(self, shape: Shape) -> None:
        return None
