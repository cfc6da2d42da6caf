"""Taking a parameter out of a model: absent where its class allows that, zeros that no longer train elsewhere."""

from collections.abc import Sequence

import torch
from torch import nn

_OPTIONAL: tuple[type[nn.Module], ...] = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
)
"""Classes that take `bias=None`. Subclasses may not: they decide for themselves how they read it."""

_READERS: tuple[type[nn.Module], ...] = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
"""Classes whose fast paths read the biases of the modules inside them as tensors."""


def remove(
    model: nn.Module, names: Sequence[str], aliases: dict[str, tuple[str, ...]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Take parameters out of a model, in place; they are zero already.

    Args:
        model: a copy.
        names: the parameters.
        aliases: all names of each.

    Returns:
        Names that are gone, and names that are zeros now: a buffer instead of a parameter, or, in a recurrent module, whose
        kernels take a flat list of its parameters, a parameter that no longer requires a gradient.
    """
    gone: list[str] = []
    zeros: list[str] = []
    read = {
        f"{path}.{inner}" if path else inner
        for path, module in model.named_modules()
        if isinstance(module, _READERS)
        for inner, _ in module.named_modules()
    }
    for name in names:
        places = [alias.rpartition(".")[::2] for alias in aliases[name]]
        owners = [(path, model.get_submodule(path), leaf) for path, leaf in places]
        if all(type(owner) in _OPTIONAL and leaf == "bias" and path not in read for path, owner, leaf in owners):
            for _, owner, leaf in owners:
                owner.register_parameter(leaf, None)
            gone.append(name)
            continue
        for _, owner, leaf in owners:
            held = owner._parameters.get(leaf)
            if held is None:
                continue
            if isinstance(owner, nn.RNNBase):
                held.requires_grad_(False)
                continue
            del owner._parameters[leaf]
            owner.register_buffer(leaf, torch.zeros_like(held.detach()))
        zeros.append(name)
    return tuple(gone), tuple(zeros)
