r"""RMS norm: each position's entries are divided by their root mean square, then scaled.

    y = x / sqrt(mean(x^2) + eps) * gamma

Why: layer norm without centring and without a shift; cheaper, and as good in practice.

Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", arXiv:1910.07467.
Differs from the source: nothing. It has no shift, whatever the bias switches say.
"""

from dataclasses import dataclass

from torch import nn

from addnorm.norm import NormSpec


@dataclass(frozen=True, kw_only=True)
class RMS(NormSpec):
    """Divide by the root mean square over the last axis."""

    eps: float = 1e-5
    """Added to the mean square."""

    def build(self, dim: int, *, shift: bool) -> nn.RMSNorm:
        return nn.RMSNorm(dim, eps=self.eps)
