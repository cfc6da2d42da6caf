r"""Entries are standardised over the positions of a sequence, later ones too.

    y = (x - mean_t(x)) / std_t(x)

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from addnorm.norm import NormSpec

BREAKS = "is_causal"


@dataclass(frozen=True, kw_only=True)
class NormOverSequence(NormSpec):
    """A broken norm."""

    def build(self, dim: int, *, shift: bool) -> "OverSequence":
        return OverSequence()


class OverSequence(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(dim=1, keepdim=True)) / (x.std(dim=1, keepdim=True) + 1e-5)
