"""Room of the norms, which standardise a stream or a branch.

Example: a norm without a gain, as a plug-in file

    @dataclass(frozen=True, kw_only=True)
    class Standardised(NormSpec):
        @classmethod
        def reduces_to(cls) -> tuple[Reduction, ...]:
            return ()

        def build(self, dim: int, *, shift: bool) -> nn.Module:
            return nn.LayerNorm(dim, elementwise_affine=False)

`preset("llama", norm="standardised")` takes it once the file is loaded; a study names it under `plugins`.
"""

from abc import abstractmethod
from dataclasses import dataclass

from torch import nn

from addnorm.catalogue import Spec
from addnorm.reduction import Reducible

__all__ = ["NormSpec"]


@dataclass(frozen=True, kw_only=True)
class NormSpec(Reducible, Spec):
    """Base of every norm's specification.

    Example:
        >>> from addnorm.norm.rms import RMS
        >>> RMS(eps=1e-6).build(16, shift=False).weight.shape
        torch.Size([16])
    """

    @abstractmethod
    def build(self, dim: int, *, shift: bool) -> nn.Module:
        """Build a module from Float[Tensor, "batch seq dim"] to the same shape.

        Args:
            dim: entries of the last axis.
            shift: True for a learned shift (beta) where the norm has one.
        """
