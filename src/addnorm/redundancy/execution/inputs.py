"""What a user passes to a model: a tensor, a tuple of positional or a dict of keyword arguments, in one form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

from addnorm.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Arguments of one call of the model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def bind(inputs: object) -> Inputs:
    """One tensor, a tuple (or list) of positional or a mapping of keyword arguments as `Inputs`.

    Raises:
        InputError: anything else arrived.
    """
    match inputs:
        case Inputs():
            return inputs
        case torch.Tensor():
            return Inputs(args=(inputs,), kwargs={})
        case tuple() | list():
            return Inputs(args=tuple(inputs), kwargs={})
        case Mapping():
            return Inputs(args=(), kwargs={str(name): value for name, value in inputs.items()})
        case _:
            raise InputError(
                f"the example inputs of an audit are a tensor, a tuple of positional or a dict of keyword arguments; "
                f"{type(inputs).__name__} arrived."
            )


def own(inputs: Inputs) -> Inputs:
    """The same numbers in other memory: a model may write into what it is given."""

    def copied(value: Any) -> Any:
        return value.detach().clone() if isinstance(value, torch.Tensor) else value

    return Inputs(args=tree_map(copied, inputs.args), kwargs=tree_map(copied, inputs.kwargs))
