"""A copy of a model with generic weights: what holds for it holds for almost all weights of that architecture.

A freshly initialised model has zeros (a last layer started at zero), equal numbers (norm scales of one) and tiny
numbers (layer scale 1e-6) that make biases look redundant which training will use. Every floating parameter gets noise
of its own size, and running statistics of batch norms become generic too. Other buffers (masks, rotary frequencies,
slopes) are part of the architecture and stay.
"""

import copy
import hashlib

import torch
from torch import nn

_FLOOR = 0.1
"""Noise for a parameter that is zero or nearly so."""


def generic(model: nn.Module, *, seed: int = 0) -> nn.Module:
    """A copy whose parameters are moved by noise drawn from hash(seed, name); same dtype, device and mode. `model`
    stays as it is.

    Magnitudes stay: noise has half the parameter's own root mean square, at least 0.1, so that norms and softmaxes
    stay in range.
    """
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in moved.named_parameters():
            if parameter.is_floating_point() and parameter.numel():
                size = float(parameter.double().square().mean().sqrt())
                fan = parameter[0].numel() if parameter.dim() > 1 else 1
                floor = _FLOOR if parameter.dim() < 2 else min(_FLOOR, fan**-0.5)
                parameter.add_(_noise(seed, name, parameter) * max(0.5 * size, floor))
        for name, module in moved.named_modules():
            if isinstance(getattr(module, "running_mean", None), torch.Tensor):
                module.running_mean.add_(_noise(seed, f"{name}.running_mean", module.running_mean) * _FLOOR)
                spread = 1 + 0.2 * _noise(seed, f"{name}.running_var", module.running_var).abs()
                module.running_var.mul_(spread)
    return moved


def _noise(seed: int, name: str, like: torch.Tensor) -> torch.Tensor:
    """Standard normal numbers that depend on the seed and the name alone."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    return torch.randn(like.shape, generator=generator, dtype=torch.float32).to(like.device, like.dtype)
