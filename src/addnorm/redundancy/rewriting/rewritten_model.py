"""A rewrite before rounding, stored as its difference from the original model.

The whole model in float64 is built on demand and freed after use, so that at most one float64 copy is in memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.rewriting.removal import set_to_none, set_to_zeros


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """Changes of a model's parameters and buffers."""

    original: nn.Module
    values: Mapping[str, Tensor] = field(default_factory=dict)
    """New numbers of parameters and buffers, in float64."""
    removed: Sequence[Sequence[str]] = ()
    """Parameters set to None, each with all its names."""
    zeroed: Sequence[Sequence[str]] = ()
    """Parameters set to zeros that are not trained, each with all its names."""

    def exact(self) -> nn.Module:
        """Build a copy in float64, in the original's mode."""
        return self._applied(copy_of(self.original, torch.float64))

    def rounded(self) -> nn.Module:
        """Build a copy on the original's device, in its precision and mode."""
        device = next(self.original.parameters()).device
        return self._applied(copy_of(self.original, None).to(device))

    @torch.no_grad()
    def _applied(self, copied: nn.Module) -> nn.Module:
        copied.train(self.original.training)
        tensors = {
            **dict(copied.named_parameters(remove_duplicate=False)),
            **dict(copied.named_buffers(remove_duplicate=False)),
        }
        for name, value in self.values.items():
            tensors[name].copy_(value)
        for names in self.removed:
            set_to_none(copied, names)
        for names in self.zeroed:
            set_to_zeros(copied, names)
        return copied
