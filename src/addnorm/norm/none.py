r"""No norm: the output is the input.

    y = x

Why: residuals such as ReZero train without a norm; and it is the reference for the effect of one.

Source: Bachlechner et al. 2020, arXiv:2003.04887; Su (2020).
Differs from the source: nothing.
"""

from dataclasses import dataclass

from torch import nn

from addnorm.norm import NormSpec
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class Nothing(NormSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def build(self, dim: int, *, shift: bool) -> nn.Identity:
        return nn.Identity()
