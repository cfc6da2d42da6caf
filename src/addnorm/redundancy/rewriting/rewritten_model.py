"""A rewritten model before it is rounded, kept as what differs from the original.

The whole of it, in float64, is built when something looks at it and forgotten afterwards: a rewrite never keeps a float64
copy waiting while another one runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.rewriting.removal import make_zeros, take_out


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """What a model becomes."""

    original: nn.Module
    values: Mapping[str, Tensor] = field(default_factory=dict)
    """New numbers of parameters and buffers, in float64."""
    gone: Sequence[Sequence[str]] = ()
    """Parameters without which it does, each with all its names."""
    zeros: Sequence[Sequence[str]] = ()
    """Parameters that are zeros which no longer train, each with all its names."""

    @torch.no_grad()
    def exact(self) -> nn.Module:
        """A new copy in float64, in the original's mode."""
        made = copy_of(self.original, torch.float64).train(self.original.training)
        own = {
            **dict(made.named_parameters(remove_duplicate=False)),
            **dict(made.named_buffers(remove_duplicate=False)),
        }
        for name, value in self.values.items():
            own[name].copy_(value)
        self.without(made)
        return made

    @torch.no_grad()
    def rounded(self) -> nn.Module:
        """A new copy on the original's device, in its precision and mode."""
        device = next(self.original.parameters()).device
        made = copy_of(self.original, None).to(device).train(self.original.training)
        own = {
            **dict(made.named_parameters(remove_duplicate=False)),
            **dict(made.named_buffers(remove_duplicate=False)),
        }
        for name, value in self.values.items():
            own[name].copy_(value)
        self.without(made)
        return made

    def without(self, made: nn.Module) -> None:
        """Take out of a copy, in place, what the rewrite does without."""
        for names in self.gone:
            take_out(made, names)
        for names in self.zeros:
            make_zeros(made, names)
