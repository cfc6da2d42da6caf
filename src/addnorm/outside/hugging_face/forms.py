"""Forms in which a checkpoint holds our parameters. `split` is the inverse of `join`, for weights and for their biases.

A parameter has its outputs on the first axis, as in `torch.nn.Linear`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from addnorm.model.architecture import Architecture


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
