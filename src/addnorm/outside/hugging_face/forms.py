"""Forms in which a checkpoint holds our parameters, and the contents of buffers that say nothing new.

`split` is the inverse of `join`, for weights and for their biases. A parameter has its outputs on the first axis, as in
`torch.nn.Linear`. The buffers are those that earlier versions of Transformers saved and that the classes compute.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from addnorm.model.architecture import Architecture
from addnorm.position import frequencies


class Form(ABC):
    """Relation between our parameters and one tensor of a checkpoint."""

    @abstractmethod
    def join(self, parts: Sequence[Tensor], spec: Architecture) -> Tensor:
        """Make the checkpoint's tensor from our parameters."""

    @abstractmethod
    def split(self, tensor: Tensor, spec: Architecture) -> Sequence[Tensor]:
        """Make our parameters from the checkpoint's tensor."""


class Same(Form):
    """One parameter, as it is."""

    def join(self, parts: Sequence[Tensor], spec: Architecture) -> Tensor:
        (part,) = parts
        return part

    def split(self, tensor: Tensor, spec: Architecture) -> Sequence[Tensor]:
        return (tensor,)


class Halves(Form):
    """Queries or keys whose rotary pairs are j and j + r/2 of each head's r rotated entries; ours are 2j and 2j + 1."""

    def join(self, parts: Sequence[Tensor], spec: Architecture) -> Tensor:
        (part,) = parts
        return self._regrouped(part, spec, (-1, 2))

    def split(self, tensor: Tensor, spec: Architecture) -> Sequence[Tensor]:
        return (self._regrouped(tensor, spec, (2, -1)),)

    def _regrouped(self, outputs: Tensor, spec: Architecture, pairs: tuple[int, int]) -> Tensor:
        # Both layouts rotate the same pairs and differ in where a pair stands. Reordering the entries of queries and
        # keys alike changes no product of the two; one of them alone would pair each frequency with another entry.
        heads = outputs.unflatten(0, (-1, spec.shape.head_dim))
        rotated = spec.build_position().rotated
        turned = heads[:, :rotated].unflatten(1, pairs).transpose(1, 2).flatten(1, 2)
        return torch.cat((turned, heads[:, rotated:]), dim=1).flatten(0, 1)


class Stacked(Form):
    """Queries, keys and values one after the other."""

    def join(self, parts: Sequence[Tensor], spec: Architecture) -> Tensor:
        return torch.cat(list(parts))

    def split(self, tensor: Tensor, spec: Architecture) -> Sequence[Tensor]:
        shape = spec.shape
        return tensor.split([heads * shape.head_dim for heads in (shape.heads, shape.kv_heads, shape.kv_heads)])


class StackedByHead(Form):
    """Queries, keys and values of the first head, then of the next one; rotary pairs as in `Halves`."""

    def join(self, parts: Sequence[Tensor], spec: Architecture) -> Tensor:
        query, key, value = parts
        # Values are not rotated, so their entries stay.
        turned = (HALVES.join((query,), spec), HALVES.join((key,), spec), value)
        return torch.stack([part.unflatten(0, (-1, spec.shape.head_dim)) for part in turned], dim=1).flatten(0, 2)

    def split(self, tensor: Tensor, spec: Architecture) -> Sequence[Tensor]:
        by_head = tensor.unflatten(0, (-1, 3, spec.shape.head_dim))
        query, key, value = (part.flatten(0, 1) for part in by_head.unbind(1))
        return (*HALVES.split(query, spec), *HALVES.split(key, spec), value)


@dataclass(frozen=True)
class Transposed(Form):
    """Matrices with inputs on the first axis, as in the `Conv1D` of GPT-2's code; biases as they are."""

    form: Form

    def join(self, parts: Sequence[Tensor], spec: Architecture) -> Tensor:
        return self._transposed(self.form.join(parts, spec))

    def split(self, tensor: Tensor, spec: Architecture) -> Sequence[Tensor]:
        return self.form.split(self._transposed(tensor), spec)

    def _transposed(self, tensor: Tensor) -> Tensor:
        return tensor.T if tensor.dim() == 2 else tensor


SAME, HALVES, STACKED = Same(), Halves(), Stacked()


def is_frequencies(tensor: Tensor, spec: Architecture) -> bool:
    """True for the rotary frequencies of a spec, to the rounding of the tensor's type."""
    position: Any = spec.build_position()
    expected = frequencies(position.rotated, position.theta, torch.device("cpu"))
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
