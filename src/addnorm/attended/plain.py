r"""Attended values as they are: the ordinary Transformer.

    z = y

Why: the reference that every other way is compared with.

Source: Vaswani et al. 2017, "Attention Is All You Need", arXiv:1706.03762, §3.2.2.
Differs from the source: nothing.
"""

from dataclasses import dataclass

from addnorm.attended import AttendedSpec
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Plain(AttendedSpec):
    """No settings."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()

    def build(self, shape: Shape, layer: int, *, std: float) -> None:
        return None
