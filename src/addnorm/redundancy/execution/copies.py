"""Copies of a model to look at, and calls of them, with nothing of the original or of the process's state touched."""

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.inputs import Inputs, own

# torch's generators and what torch.export patches belong to the process, so two audits in two threads take turns.
PROCESS = threading.RLock()


def copy_of(
    model: nn.Module, dtype: torch.dtype | None, numbers: Callable[[Tensor], Tensor] = Tensor.detach
) -> nn.Module:
    """A copy on the CPU that shares no storage with the model, ties kept, floating-point tensors in `dtype` (None: as is).

    The CPU, because an index beyond a table (a length that the model does not take) is an error there and the end of the
    process on a GPU. Every tensor is converted while it is copied, so the copy in float64 never has a float32 twin in memory.

    Args:
        model: what to copy.
        dtype: of the copy.
        numbers: what a parameter or buffer of the model holds in the copy.

    Raises:
        InputError: the model cannot be copied.
    """
    memo: dict[int, object] = {}
    for owner in model.modules():
        for tensor in [*owner.parameters(recurse=False), *owner.buffers(recurse=False)]:
            if id(tensor) not in memo:
                memo[id(tensor)] = _converted(tensor, numbers(tensor), dtype)
    return _copied(model, memo)


def plain_copy(model: nn.Module) -> nn.Module:
    """A copy where the model is, numbers and all.

    Raises:
        InputError: the model cannot be copied.
    """
    return _copied(model, {})


def _copied(model: nn.Module, memo: dict[int, object]) -> nn.Module:
    try:
        return copy.deepcopy(model, memo)
    except (RuntimeError, TypeError, NotImplementedError, AttributeError) as error:
        raise InputError(f"the model cannot be copied, and it is never modified in place: {error}.") from error


def _converted(tensor: Tensor, value: Tensor, dtype: torch.dtype | None) -> Tensor:
    value = value.to("cpu", dtype if dtype is not None and value.is_floating_point() else value.dtype, copy=True)
    return nn.Parameter(value, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else value


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers from `seed` inside, for dropout; the process's generator is as before afterwards."""
    with PROCESS, torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        yield


def device_of(model: nn.Module) -> torch.device:
    """Where the model's parameters live.

    Raises:
        InputError: on several devices, or nowhere.
    """
    places = sorted({str(parameter.device) for parameter in model.parameters()})
    if len(places) > 1:
        raise InputError(
            f"a model is audited on one device, but its parameters are on {', '.join(places)}. Move it first."
        )
    if places == ["meta"]:
        raise InputError(
            "the model's parameters are on the meta device and have no values. Load or initialise it first."
        )
    return torch.device(places[0]) if places else torch.device("cpu")


def call(model: nn.Module, inputs: Inputs, seed: int = 0) -> Any:
    """The output of a copy, on the CPU, with its random numbers fixed and no autocast around it; on inputs of its own, since
    a model may write into them."""
    return call_on(model, own(inputs), seed)


def call_on(model: nn.Module, inputs: Inputs, seed: int = 0) -> Any:
    """The same on the very inputs given."""
    with seeded(seed), torch.autocast("cpu", enabled=False):
        return model(*inputs.args, **inputs.kwargs)
