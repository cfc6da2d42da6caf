r"""Layer norm: each position's entries are standardised, then scaled and shifted.

    y = (x - mean(x)) / sqrt(var(x) + eps) * gamma + beta        if bias.norm
    y = (x - mean(x)) / sqrt(var(x) + eps) * gamma        if not bias.norm

Why: the size of the stream no longer depends on depth or on the batch.

Source: Ba et al. 2016, "Layer Normalization", arXiv:1607.06450; Anonymous (n.d.) eq. 5; Zhang (2026) §13.4.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from torch import nn

from addnorm.fields import require_positive
from addnorm.norm import NormSpec
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class Layer(NormSpec):
    """Standardise over the last axis."""

    eps: float = 1e-5
    """Added to the variance."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "eps")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def build(self, dim: int, *, shift: bool) -> nn.LayerNorm:
        return nn.LayerNorm(dim, eps=self.eps, bias=shift)
