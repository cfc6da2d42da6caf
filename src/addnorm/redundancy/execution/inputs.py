"""Example inputs of a model: a tensor, a tuple of positional or a dict of keyword arguments, in one form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map

from addnorm.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The arguments of one call of the model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def bind(inputs: object) -> Inputs:
    """Convert one tensor or packed sequence, a tuple or list of positional or a mapping of keyword arguments to `Inputs`.

    Raises:
        InputError: any other type.
    """
    match inputs:
        case Inputs():
            return inputs
        case torch.Tensor() | PackedSequence():
            return Inputs(args=(inputs,), kwargs={})
        case tuple() | list():
            return Inputs(args=tuple(inputs), kwargs={})
        case Mapping():
            return Inputs(args=(), kwargs={str(name): value for name, value in inputs.items()})
        case _:
            raise InputError(
                "expected example inputs as a tensor, a tuple of positional or a dict of keyword arguments, got "
                f"{type(inputs).__name__}."
            )


def cloned(inputs: Inputs) -> Inputs:
    """Clone all tensors of a call."""

    def clone(value: Any) -> Any:
        return value.detach().clone() if isinstance(value, torch.Tensor) else value

    return Inputs(args=tree_map(clone, inputs.args), kwargs=tree_map(clone, inputs.kwargs))
