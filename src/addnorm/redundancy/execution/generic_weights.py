"""Generic weights for a model: a property that holds for them holds for almost all weights of that architecture.

A freshly initialised model has zeros (a last layer initialised to zero), equal numbers (norm scales of one) and tiny numbers
(layer scale 1e-6), because of which biases look redundant that training will use. Noise of its own magnitude is added to every
floating-point parameter, and running statistics of batch norms become generic too. Other buffers (masks, rotary frequencies,
slopes) are part of the architecture and stay.

The numbers are computed one tensor at a time, so that no second model in the original precision is in memory.
"""

import hashlib
import math

import torch
from torch import Tensor, nn

from addnorm.redundancy.execution.copies import copy_of

_FLOOR = 0.1
"""Standard deviation of the noise for a parameter that is zero or nearly zero."""
_PIECE = 2**20
"""Number of entries converted to float64 at once."""


class GenericWeights:
    """A model's tensors at a generic point: with noise drawn from hash(seed, name), in their own precision. The model
    is not changed.

    The noise has about half the parameter's own root mean square, at least 0.1, so that norms and softmaxes stay in range.
    """

    def __init__(self, model: nn.Module, *, seed: int = 0) -> None:
        self._seed = seed
        self._tensors: dict[str, Tensor] = {
            **dict(model.named_parameters(remove_duplicate=False)),
            **dict(model.named_buffers(remove_duplicate=False)),
        }
        self._names = {id(each): name for name, each in model.named_parameters()}
        self._statistics: dict[int, str] = {}
        for name, module in model.named_modules():
            if isinstance(getattr(module, "running_mean", None), Tensor):
                for field in ("running_mean", "running_var"):
                    self._statistics[id(getattr(module, field))] = f"{name}.{field}"

    def named(self, name: str) -> Tensor:
        """Return a parameter's or buffer's numbers, by any of its names."""
        return self.of(self._tensors[name])

    @torch.no_grad()
    def of(self, tensor: Tensor) -> Tensor:
        """Return the numbers of a tensor of the model; the tensor itself if it stays."""
        name = self._names.get(id(tensor))
        if name is not None and tensor.is_floating_point() and tensor.numel():
            fan = tensor[0].numel() if tensor.dim() > 1 else 1
            # A weight of zeros gets noise by its inputs, as an initialisation would draw it, or activations would grow
            # from layer to layer.
            floor = _FLOOR if tensor.dim() < 2 else min(_FLOOR, fan**-0.5)
            return _noise(self._seed, name, tensor).mul_(max(0.5 * _root_mean_square(tensor), floor)).add_(tensor)
        statistic = self._statistics.get(id(tensor))
        if statistic is None:
            return tensor.detach()
        noise = _noise(self._seed, statistic, tensor)
        # A variance has to stay positive.
        return tensor + noise * _FLOOR if statistic.endswith("mean") else tensor * (1 + 0.2 * noise.abs())


def generic(model: nn.Module, dtype: torch.dtype | None = None, *, seed: int = 0) -> nn.Module:
    """Copy a model to the CPU with generic weights, floating-point tensors in `dtype` (None: as they are)."""
    return copy_of(model, dtype, GenericWeights(model, seed=seed).of)


def _root_mean_square(tensor: Tensor) -> float:
    pieces = tensor.detach().reshape(-1).split(_PIECE)
    return math.sqrt(sum(float(piece.double().square().sum()) for piece in pieces) / tensor.numel())


def _noise(seed: int, name: str, like: Tensor) -> Tensor:
    """Random numbers of size about one that depend on the seed and the name alone: normal, but those of a vector lie in
    [-1.5, -0.5] or [0.5, 1.5].

    Vectors are scales of channels: norms, layer scale. Among hundreds of normal numbers one is a thousandth of the largest,
    and an equation with such a scale can no longer be solved for one channel at a time.
    """
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    if like.numel() == max(
        like.shape, default=1
    ):  # a vector, perhaps with axes of size one, as torchvision's layer scale
        drawn = 2 * torch.rand(like.shape, generator=generator, dtype=torch.float32) - 1
        drawn += drawn.sign().mul_(0.5)
    else:
        drawn = torch.randn(like.shape, generator=generator, dtype=torch.float32)
    return drawn.to(like.device, like.dtype)
