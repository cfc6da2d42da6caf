"""Room of the norms: what standardises a stream or a branch."""

from abc import abstractmethod
from dataclasses import dataclass

from torch import nn

from addnorm.catalogue import Spec

__all__ = ["NormSpec"]


@dataclass(frozen=True, kw_only=True)
class NormSpec(Spec):
    """Base of every norm's configuration."""

    @abstractmethod
    def build(self, dim: int, *, shift: bool) -> nn.Module:
        """A module from Float[Tensor, "batch seq dim"] to the same shape.

        Args:
            dim: entries of the last axis.
            shift: True for a learned shift (beta) where the norm has one.
        """
