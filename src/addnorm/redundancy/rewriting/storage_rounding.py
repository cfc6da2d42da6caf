"""Rounding of a rewrite's numbers to the format in which a model is stored."""

import torch
from torch import Tensor, nn

from addnorm.redundancy.rewriting.rewritten_model import Rewrite

DRAWS = 4
"""Number of random signs with which stored numbers are moved by their rounding error."""
_FACTOR = 4
"""The largest effect of a few draws, each of the rounding error's largest size, is compared with the effect of the actual
errors. The largest of a few hundred such effects varies by a factor of about two, and each draw may fall short by as
much."""


def half_precision(model: nn.Module) -> torch.dtype | None:
    """Return the format below float32 in which a model's parameters are stored, the coarsest one if there are several;
    None if there is none."""
    formats = {each.dtype for each in model.parameters() if each.is_floating_point()}
    lower = [each for each in formats if torch.finfo(each).eps > torch.finfo(torch.float32).eps]
    return max(lower, key=lambda each: torch.finfo(each).eps, default=None)


def rounding_moves(rewrite: Rewrite, rewritten: nn.Module, seed: int) -> dict[str, Tensor]:
    """Return a rewrite's values, those that it changes moved by four times their rounding error, at random signs."""
    original = dict(rewrite.original.named_parameters(remove_duplicate=False)) | dict(rewrite.original.named_buffers())
    stored = dict(rewritten.named_parameters(remove_duplicate=False)) | dict(rewritten.named_buffers())
    generator = torch.Generator().manual_seed(seed)
    return {
        name: value
        if name not in stored or torch.equal(value, original[name].detach().to("cpu", torch.float64))
        else rounded_at_random(value, stored[name].dtype, generator)
        for name, value in rewrite.values.items()
    }


def rounded_at_random(value: Tensor, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Move numbers by four times the largest error of rounding them to a format, at random signs."""
    return moved_at_random(value, value.abs() * (torch.finfo(dtype).eps / 2), generator)


def moved_at_random(value: Tensor, error: Tensor, generator: torch.Generator) -> Tensor:
    """Move numbers by four times their errors, at random signs."""
    # Errors of their largest size, not of a random one: few draws have to reach what the actual rounding may do.
    signs = 2 * torch.randint(0, 2, value.shape, generator=generator) - 1
    return value + _FACTOR * signs * error
