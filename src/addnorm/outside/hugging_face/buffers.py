"""Buffers that earlier versions of Transformers saved, and that the classes compute: contents that say nothing new."""

import math
from typing import Any

import torch
from torch import Tensor

from addnorm.model.architecture import Architecture


def is_frequencies(tensor: Tensor, spec: Architecture) -> bool:
    """True for the rotary frequencies of a spec, to the rounding of the tensor's type."""
    position: Any = spec.build_position()
    pair = torch.arange(0, position.rotated, 2, dtype=torch.float64)
    expected = position.theta ** (-pair / position.rotated)
    if tensor.shape != expected.shape or not tensor.is_floating_point():
        return False
    # They were computed in float32, in which the rounded exponent is off by one unit and the power by its logarithm as many;
    # then they were rounded to the tensor's type, whose smallest numbers are less precise.
    unit = torch.finfo(tensor.dtype).eps + torch.finfo(torch.float32).eps * (2 + math.log(position.theta))
    smallest = torch.finfo(tensor.dtype).smallest_normal * torch.finfo(tensor.dtype).eps
    return bool(((tensor.double() - expected).abs() <= expected * unit + smallest).all())


def is_mask(tensor: Tensor, spec: Architecture) -> bool:
    """True for a mask [1, 1, seq, seq] that shows all earlier positions; the class hides the later ones in any case."""
    shown = tensor.dim() == 4 and tensor.shape[:2] == (1, 1) and tensor.shape[2] == tensor.shape[3]
    return shown and bool((tensor[0, 0] != 0).logical_or(torch.ones_like(tensor[0, 0], dtype=torch.bool).triu(1)).all())


def is_number(tensor: Tensor, spec: Architecture) -> bool:
    """True for one number, such as the one that stands for hidden scores."""
    return tensor.numel() == 1


def is_count(tensor: Tensor, spec: Architecture) -> bool:
    """True for the positions 0, 1, 2, …"""
    return torch.equal(tensor.flatten().double(), torch.arange(tensor.numel(), dtype=torch.float64))
