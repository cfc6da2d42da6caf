"""Copies of a model and calls of them that change neither the original nor the process's state."""

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from addnorm.errors import InputError
from addnorm.redundancy.execution.inputs import Inputs, cloned
from addnorm.redundancy.execution.observation import Observe, ObservedNumbers, observed_numbers

_OWN = ("_parameters", "_buffers", "_modules")
"""Attributes of a module that hold its parameters, buffers and modules."""
_INHERITED = frozenset(vars(nn.Module()))
"""Attributes that every module has: none of them is a tensor."""
_COMPLEX = {torch.float64: torch.complex128, torch.float32: torch.complex64}
"""Complex types by that of their parts."""


class _ProcessLock:
    """A reentrant lock, under which what torch.compile made runs as it was written: compiled code would be compiled again for
    every copy and length, and may drop what its graph keeps apart."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._stances: list[Any] = []

    def __enter__(self) -> None:
        self._lock.acquire()
        self._stances.append(torch.compiler.set_stance("force_eager"))

    def __exit__(self, *error: object) -> None:
        self._stances.pop().__exit__(*error)
        self._lock.release()


PROCESS_LOCK = _ProcessLock()
"""Serialises audits in several threads: torch's generators and the patches of torch.export belong to the process."""


def copy_of(
    model: nn.Module, dtype: torch.dtype | None, numbers: Callable[[Tensor], Tensor] = Tensor.detach
) -> nn.Module:
    """Copy a model to the CPU, without shared storage, with tied parameters, and floating-point tensors in `dtype`
    (None: as is).

    The CPU is used because an index beyond a table (a length that the model rejects) raises there, whereas it ends the
    process on a GPU. Tensors are converted while they are copied, so that no second copy in the original precision
    exists.

    Args:
        model: the model.
        dtype: of the copy.
        numbers: maps a parameter or buffer of the model to its numbers in the copy.

    Raises:
        InputError: the model cannot be copied.
    """
    memo: dict[int, object] = {}
    # The memo of deepcopy is filled beforehand: what it holds counts as copied. So tensors are converted on the way,
    # and tied ones stay tied because they have one identity.
    for owner in model.modules():
        for tensor in [*owner.parameters(recurse=False), *owner.buffers(recurse=False)]:
            if id(tensor) not in memo:
                memo[id(tensor)] = _converted(tensor, numbers(tensor), dtype)
    memo.update({id(tensor): _converted(tensor, tensor.detach(), dtype) for tensor in _computed(model)})
    return _copied(model, memo)


def plain_copy(model: nn.Module) -> nn.Module:
    """Copy a model on its device.

    Raises:
        InputError: the model cannot be copied.
    """
    return _copied(model, {id(tensor): tensor.detach().clone() for tensor in _computed(model)})


def _computed(model: nn.Module) -> Iterator[Tensor]:
    """Attributes that were computed from parameters, by a hook as that of `torch.nn.utils.weight_norm` or by an earlier call
    that keeps its losses: deepcopy refuses them."""
    for module in model.modules():
        kept = [value for field, value in vars(module).items() if field not in _OWN]
        yield from (each for each in tree_leaves(kept) if isinstance(each, Tensor) and not each.is_leaf)


def _copied(model: nn.Module, memo: dict[int, object]) -> nn.Module:
    try:
        return copy.deepcopy(model, memo)
    except (RuntimeError, TypeError, NotImplementedError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(
            "expected a model that copy.deepcopy can copy, because it is never modified in place, got an error"
            f"{_uncopied(model, memo)}: {reason}."
        ) from error


def _uncopied(model: nn.Module, memo: dict[int, object]) -> str:
    """Name the attribute that cannot be copied; empty if it is none."""
    for path, module in model.named_modules():
        for field, value in vars(module).items():
            # Parameters, buffers and modules have been tried with the whole model; what is left is the user's.
            if field in _OWN:
                continue
            try:
                copy.deepcopy(value, dict(memo))
            except Exception:  # noqa: BLE001 - the same failure as that of the whole model, of any kind
                name = f"{path}.{field}".removeprefix(".")
                return f" at the attribute {name!r} ({type(value).__name__}). Set it to None before the audit"
    return ""


def in_type(tensor: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """Return the type of a tensor in a computation in `dtype`: complex numbers have parts of that type."""
    if dtype is None or not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor.dtype
    return _COMPLEX.get(dtype, tensor.dtype) if tensor.is_complex() else dtype


def _converted(tensor: Tensor, value: Tensor, dtype: torch.dtype | None) -> Tensor:
    value = value.to("cpu", in_type(value, dtype), copy=True)
    return nn.Parameter(value, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else value


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the random numbers inside, for dropout; restore the process's generator afterwards."""
    with PROCESS_LOCK, torch.random.fork_rng([]):
        torch.default_generator.manual_seed(seed)
        yield


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's parameters.

    Raises:
        InputError: they are on several devices, or on the meta device.
    """
    places = sorted({str(parameter.device) for parameter in model.parameters()})
    if len(places) > 1:
        raise InputError(
            f"expected all parameters on one device, got {', '.join(places)}. Move the model first, for example "
            "model.to('cpu')."
        )
    if places == ["meta"]:
        raise InputError(
            "expected parameters with values, got a model on the meta device. Load or initialise it first."
        )
    return torch.device(places[0]) if places else torch.device("cpu")


def call(model: nn.Module, inputs: Inputs, seed: int = 0) -> Any:
    """Call a copy on the CPU with fixed random numbers and without autocast, on clones of the inputs, into which a
    model may write. Every call finds the model's buffers as the first one did."""
    return call_on(model, cloned(inputs), seed)


def call_on(model: nn.Module, inputs: Inputs, seed: int = 0) -> Any:
    """Call a copy as `call` does, on the given inputs themselves."""
    with _restored(model):
        return _called(model, inputs, seed)


def observed_calls(
    model: nn.Module, inputs: Inputs, observe: Observe, count: int | None = None
) -> tuple[ObservedNumbers, ...]:
    """Return the observed numbers of `count` calls in turn, each of which reads what the one before left.

    Without a count there are two if the second differs from the first, because it reads what that left in a buffer or an
    attribute (a running mean, a cache that grows), else one. A move must not change how many there are, so that whoever
    compares outputs asks once.
    """
    with _restored(model) as own:
        made = [observed_numbers(_called(model, cloned(inputs)), observe)]
        now = held_tensors(model)
        may_differ = any(name not in now or not _is_same(now[name], each) for name, each in own.items())
        if count == 2 or (count is None and may_differ):
            made.append(observed_numbers(_called(model, cloned(inputs)), observe))
    first, last = made[0], made[-1]
    same = _is_same(first.integers, last.integers) and _is_same(first.floats.nan_to_num(), last.floats.nan_to_num())
    return tuple(made[:1] if count is None and same else made)


def held_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Buffers, and tensors in attributes of modules, by path; parameters are left out."""
    return {
        f"{path}.{name}".removeprefix("."): value
        for path, module in model.named_modules(remove_duplicate=False)
        for fields in (module._buffers, vars(module))
        for name, value in fields.items()
        if name not in _INHERITED and isinstance(value, Tensor) and not isinstance(value, nn.Parameter)
    }


@contextmanager
def _restored(model: nn.Module) -> Iterator[Mapping[str, Tensor]]:
    """Buffers and tensors in attributes are again what they were, whatever is written into them or takes their place.

    The calls read copies of them: one that was written into could not be put back without a trace, since the gradients of
    a call count the writes to what they read.
    """
    own = held_tensors(model)
    copies = {id(value): value.detach().clone() if value.is_leaf else value for value in own.values()}
    for name, value in own.items():
        _hold(model, name, copies[id(value)])
    try:
        yield own
    finally:
        for name, value in own.items():
            _hold(model, name, value)


def _is_same(one: Tensor, two: Tensor) -> bool:
    return one.dtype == two.dtype and one.shape == two.shape and torch.equal(one, two)


def _hold(model: nn.Module, name: str, value: Tensor) -> None:
    path, _, field = name.rpartition(".")
    module = model.get_submodule(path)
    (module._buffers if field in module._buffers else vars(module))[field] = value


def _called(model: nn.Module, inputs: Inputs, seed: int = 0) -> Any:
    with seeded(seed), torch.autocast("cpu", enabled=False):
        return model(*inputs.args, **inputs.kwargs)
