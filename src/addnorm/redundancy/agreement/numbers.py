"""Numbers of a model by name, and models whose numbers have the same names: removed biases count as zeros."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from addnorm.errors import InputError
from addnorm.redundancy.execution.copies import copy_of, plain_copy

_PLAIN = (int, float, str, type(None))
_BOOKKEEPING = ("training", "dtype", "transformers_version", "architectures")
"""Attributes that change no number that a model computes."""


def numbers(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's parameters and the buffers that its file holds, by all their names, on the CPU."""
    return {name: each.detach().cpu() for name, each in _stored(model)}


def unstored_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Return the buffers that no file holds, such as tables of a rotary position and masks."""
    stored = {name for name, _ in _stored(model)}
    return {
        name: each.detach().cpu() for name, each in model.named_buffers(remove_duplicate=False) if name not in stored
    }


def unequal_settings(first: nn.Module, second: nn.Module) -> tuple[str, ...]:
    """Return the plain attributes of modules of both models, and of their configurations, that differ: a window, an epsilon."""
    ours, theirs = _settings(first), _settings(second)
    return tuple(name for name, value in ours.items() if name in theirs and theirs[name] != value)


def _settings(model: nn.Module) -> dict[str, object]:
    owners: list[tuple[str, object]] = [("config.", getattr(model, "config", None))]
    owners += [(f"{path}." if path else "", module) for path, module in model.named_modules()]
    return {
        f"{path}{name}": value
        for path, owner in owners
        for name, value in getattr(owner, "__dict__", {}).items()
        if not name.startswith("_") and name not in _BOOKKEEPING
        if all(isinstance(leaf, _PLAIN) for leaf in tree_leaves(value))
    }


def _stored(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    for path, module in model.named_modules(remove_duplicate=False):
        for leaf, buffer in module._buffers.items():
            if buffer is not None and leaf not in module._non_persistent_buffers_set:
                yield f"{path}.{leaf}".removeprefix("."), buffer


def differing(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> list[str]:
    """Return the names of unequal numbers. The type in which they are stored does not count, and a further name of a tensor
    that both models share is left out."""
    seen: set[object] = set()
    names = []
    for name, value in ours.items():
        # Tied weights have several names and one memory; but two slices of one memory are two tensors, hence shape and
        # stride.
        pair = tuple((each.data_ptr(), each.shape, each.stride()) for each in (value, theirs[name]))
        if value.numel() and pair not in seen and not equal_numbers(value, theirs[name]):
            names.append(name)
        seen.add(pair)
    return names


def equal_numbers(one: Tensor, other: Tensor) -> bool:
    """Return True if two tensors hold the same numbers, in whatever type."""
    if one.shape != other.shape:
        return False
    if one.dtype == other.dtype and one.element_size() > 1:
        return torch.equal(one, other)
    wide = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
    return torch.equal(one.to(wide), other.to(wide))


def with_zero_biases(model: nn.Module, like: nn.Module) -> nn.Module:
    """Return the model with zeros for parameters that only the other one has, on a copy; itself if there are none.

    `--strip` sets a bias to None, or makes it a buffer of zeros.

    Raises:
        InputError: what is missing is not such a bias.
    """
    known = dict(model.named_parameters(remove_duplicate=False))
    wanted = dict(like.named_parameters(remove_duplicate=False))
    missing = [name for name in wanted if name not in known and _is_removed(model, name, wanted[name])]
    if not missing:
        return model
    completed = plain_copy(model)
    made: dict[int, nn.Parameter] = {}
    for name in missing:
        path, _, leaf = name.rpartition(".")
        owner = completed.get_submodule(path)
        owner._buffers.pop(leaf, None)
        # A bias that is shared in the other model has to be one parameter here too, or its null space would be another.
        made.setdefault(id(wanted[name]), nn.Parameter(torch.zeros_like(wanted[name])))
        owner.register_parameter(leaf, made[id(wanted[name])])
    return completed


def _is_removed(model: nn.Module, name: str, wanted: Tensor) -> bool:
    path, _, leaf = name.rpartition(".")
    try:
        owner = model.get_submodule(path)
    except AttributeError:
        return False
    zeros = owner._buffers.get(leaf)
    absent = leaf in owner._parameters and owner._parameters[leaf] is None
    return absent or (zeros is not None and zeros.shape == wanted.shape and not bool(zeros.any()))


def check_same_names(first: nn.Module, second: nn.Module) -> None:
    """Refuse models whose parameters or stored buffers differ in name or shape.

    Raises:
        InputError: they do.
    """
    ours, theirs = numbers(first), numbers(second)
    unmatched = sorted(ours.keys() ^ theirs.keys())
    unequal = [name for name in ours if name in theirs and ours[name].shape != theirs[name].shape]
    if unmatched or unequal:
        some = [
            *(f"{name} (only in the {'first' if name in ours else 'second'})" for name in unmatched),
            *(f"{name} ({list(ours[name].shape)} and {list(theirs[name].shape)})" for name in unequal),
        ]
        more = f" and {len(some) - 5} more" if len(some) > 5 else ""
        raise InputError(
            f"expected two models whose parameters match in name and shape, got different ones: {', '.join(some[:5])}{more}."
        )


@torch.no_grad()
def with_numbers_of(model: nn.Module, other: nn.Module) -> nn.Module:
    """Return a copy of a model in float64 that has the other one's numbers."""
    copied = copy_of(model, torch.float64)
    own, given = dict(_stored(copied)), numbers(other)
    for name, tensor in own.items():
        tensor.copy_(given[name])
    return copied
