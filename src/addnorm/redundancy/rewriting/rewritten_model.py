"""A rewrite before rounding, stored as its difference from the original model.

The whole model in float64 is built on demand and freed after use, so that at most one float64 copy is in memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.rewriting.float32_biases import keep_in_float32
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
    float32: bool = False
    """Store the changed parameters of a model in lower precision in float32, where its modules can compute with them."""

    def exact(self) -> nn.Module:
        """Build a copy in float64, in the original's mode."""
        return self._applied(copy_of(self.original, torch.float64))

    def rounded(self, inputs: Inputs) -> tuple[nn.Module, tuple[str, ...]]:
        """Build a copy on the original's device, in its precision and mode; also return the names of the parameters that
        are stored in float32."""
        device = next(self.original.parameters()).device
        # Rounded once, from the float64 values. A sum of rounded parts would differ by more than the bound allows.
        built = self._applied(copy_of(self.original, None))
        kept = keep_in_float32(built, self._changed(), inputs) if self.float32 else ()
        return built.to(device), kept

    def _changed(self) -> dict[str, Tensor]:
        """The new numbers that are not removed."""
        gone = {name for names in (*self.removed, *self.zeroed) for name in names}
        original = dict(self.original.named_parameters(remove_duplicate=False))
        return {
            name: value
            for name, value in self.values.items()
            if name in original
            and name not in gone
            and not torch.equal(value, original[name].detach().to("cpu", torch.float64))
        }

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
