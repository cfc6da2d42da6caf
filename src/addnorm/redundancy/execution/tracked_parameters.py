"""Tracked parameters: the numbers of a model that an audit moves, and their positions in one vector delta.

The choice depends on the use of a parameter, not on its name (a causal mask may be called `bias`, a bias may be called
`u`). The model is called once, and every use of every parameter is recorded through views, slices and concatenations
(`parameter_uses.py`). A parameter is a

bias      if what meets data is an affine function of it and each of its uses adds that to data: as an operand of + or -,
          or as the bias of a linear map, a convolution or a norm; and if, added to data of three or more axes, it is
          constant along the first axis and at least one more (a learned position table, which varies along the positions,
          is not). A parameter with one axis is always a bias.
table     if it is indexed (an embedding), or added or concatenated without being a bias: position tables,
          relative-position tables, class tokens.
scalar    otherwise, if it has no or one axis and at most 64 numbers: residual scales, temperatures, exponents.

A parameter between its own numbers and the sum may pass through anything that reads no data: a mask, a constant factor, a
selection, a join, a parametrisation. The function must be affine in all biases together, as a test by moves shows
(`affine.py`). A parameter that would be a bias but for that (a product of two parameters, a bias behind a tanh) is not
tracked, and named in `nonlinear`; so is one of complex numbers.

`track` selects: "bias"; "bias+tables"; "scalars"; or a regular expression over the names, whatever the use. Tables of
up to 1024 numbers are tracked entry by entry, larger ones only as their common row: the change that adds one vector to
every row (along the last axis). All names of a shared parameter are aliases of one entry. Parameters without a use are
not tracked.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from addnorm.errors import InputError
from addnorm.redundancy.execution.copies import device_of
from addnorm.redundancy.execution.inputs import bind
from addnorm.redundancy.execution.parameter_uses import ParameterUse, parameter_uses

Role = Literal["bias", "table", "scalar", "named"]
Coordinates = Literal["entries", "common row"]

LARGEST_TABLE = 1024
"""Largest number of entries of a table that is tracked entry by entry."""
LARGEST_SCALARS = 64
"""Largest number of entries of a parameter that counts as learned scalars."""


@dataclass(frozen=True, kw_only=True)
class TrackedParameter:
    """One tracked parameter."""

    name: str
    """Its first name in the model."""
    aliases: tuple[str, ...]
    """All its names, including the first."""
    shape: tuple[int, ...]
    """Shape of the parameter."""
    coordinates: Coordinates
    """`entries`: one coordinate per entry; `common row`: one per column, added to every row."""
    role: Role
    offset: int
    """Position of its first coordinate in delta."""

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return prod(self.shape) if self.coordinates == "entries" else self.shape[-1]

    @property
    def coordinate_shape(self) -> tuple[int, ...]:
        """Shape of a change: the parameter's, or that of one row."""
        return self.shape if self.coordinates == "entries" else self.shape[-1:]


@dataclass(frozen=True, kw_only=True)
class TrackedParameters:
    """All tracked parameters of a model. A change `delta` is a dict from name to a tensor of `coordinate_shape`; absent
    names do not change."""

    entries: tuple[TrackedParameter, ...]
    unused: tuple[str, ...] = ()
    """Parameters that would be tracked if the model's forward pass read them."""
    nonlinear: tuple[str, ...] = ()
    """Parameters that are only added to data, but not as affine functions of real numbers, so that they are not tracked."""
    other: tuple[str, ...] = ()
    """Parameters that are called biases, or are also added to data, but are used otherwise, so that they are not tracked."""

    @cached_property
    def by_name(self) -> dict[str, TrackedParameter]:
        """Map every alias to its entry."""
        return {alias: entry for entry in self.entries for alias in entry.aliases}

    def __getitem__(self, name: str) -> TrackedParameter:
        return self.by_name[name]

    @property
    def names(self) -> tuple[str, ...]:
        """First names, in the order of delta."""
        return tuple(entry.name for entry in self.entries)

    @property
    def size(self) -> int:
        """Number of coordinates of all entries."""
        return sum(entry.size for entry in self.entries)

    def flatten(self, delta: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Convert a change to one float64 vector of `size` numbers."""
        vector = torch.zeros(self.size, dtype=torch.float64)
        for name, change in delta.items():
            entry = self[name]
            vector[entry.offset : entry.offset + entry.size] = change.detach().reshape(-1).to("cpu", torch.float64)
        return vector

    def split(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """Invert `flatten`, with all entries."""
        return {
            entry.name: vector[entry.offset : entry.offset + entry.size].reshape(entry.coordinate_shape)
            for entry in self.entries
        }

    def moved(self, model: nn.Module, delta: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return new tensors for the changed parameters under all their names, for `torch.func.functional_call` or
        `load_state_dict`.
        """
        state = dict(model.named_parameters(remove_duplicate=False))
        replaced = {}
        for name, change in delta.items():
            entry = self[name]
            old = state[entry.name].detach()
            new = (old.to(torch.float64) + change.to(old.device, torch.float64)).to(old.dtype)
            replaced.update(dict.fromkeys(entry.aliases, new))
        return replaced


def track_parameters(model: nn.Module, inputs: object, *, track: str = "bias") -> TrackedParameters:
    """Choose the tracked parameters by calling a copy of the model once in evaluation mode.

    Args:
        model: the model, which is not changed.
        inputs: example inputs that the model accepts (see `inputs.bind`).
        track: "bias", "bias+tables", "scalars" or a regular expression over parameter names.

    Raises:
        InputError: the inputs do not fit the model, a weight is not finite, parameters lie on several devices or share
            memory, or `track` is not a regular expression.
    """
    _check_weights(model)
    uses = parameter_uses(model, bind(inputs))
    pattern = None if track in ("bias", "bias+tables", "scalars") else _pattern(track)
    aliases: dict[int, list[str]] = {}
    parameters: dict[int, nn.Parameter] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(parameter), []).append(name)
        parameters[id(parameter)] = parameter
    tensors = [(name, tensor, _memory(tensor)) for name, tensor in _tensors_of(model)]
    entries: list[TrackedParameter] = []
    unused: list[str] = []
    nonlinear: list[str] = []
    other: list[str] = []
    offset = 0
    for key, names in aliases.items():
        shape = tuple(parameters[key].shape)
        used = uses.get(names[0], ())
        if 0 in shape or not (parameters[key].is_floating_point() or parameters[key].is_complex()):
            continue
        # Named in a note, not left out in silence: the reader sees a bias in the code and looks for its row.
        if track.startswith("bias") and _nonlinear(shape, used, is_complex=parameters[key].is_complex()):
            nonlinear.append(names[0])
        if parameters[key].is_complex():
            continue
        role = _role(shape, used, track, pattern, names)
        if role is None:
            # Whatever its use, a reader who sees such a name, or such a sum, in the code looks for its row.
            called = "bias" in names[0].rpartition(".")[2].lower()
            if track.startswith("bias") and names[0] not in nonlinear and (called or _also_added(shape, used)):
                other.append(names[0])
            continue
        if not used:
            unused.append(names[0])
            continue
        # Entry by entry a vocabulary would take a gradient per number; its common row is what a bias behind the lookup
        # can absorb.
        whole = role != "table" or prod(shape) <= LARGEST_TABLE
        entry = TrackedParameter(
            name=names[0],
            aliases=tuple(names),
            shape=shape,
            coordinates="entries" if whole else "common row",
            role=role,
            offset=offset,
        )
        _check_unshared(parameters[key], names, tensors)
        entries.append(entry)
        offset += entry.size
    return TrackedParameters(
        entries=tuple(entries), unused=tuple(unused), nonlinear=tuple(nonlinear), other=tuple(other)
    )


def _check_unshared(
    parameter: nn.Parameter, names: list[str], tensors: list[tuple[str, torch.Tensor, tuple[int, int, int]]]
) -> None:
    """Refuse a parameter that shares memory with another tensor of the model: a step of training would change both."""
    storage, first, end = _memory(parameter)
    for other, tensor, (other_storage, other_first, other_end) in tensors:
        if tensor is not parameter and storage == other_storage and first < other_end and other_first < end:
            raise InputError(
                f"expected parameters that can be moved one by one, got {names[0]} and {other}, which are two names of the "
                "same memory without being one parameter. Assign the parameter itself under both names, or clone one."
            )


def _tensors_of(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors of a model: parameters, buffers, and plain attributes."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)
    for path, module in model.named_modules():
        for field, value in vars(module).items():
            if field not in ("_parameters", "_buffers", "_modules"):
                name = f"{path}.{field}".removeprefix(".")
                yield from ((name, leaf) for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _memory(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Its storage, the first entry in it, and the entry after the last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    first = int(tensor.storage_offset())
    return tensor.untyped_storage().data_ptr(), first, first + last + 1 if tensor.numel() else first


def _check_weights(model: nn.Module) -> None:
    device_of(model)
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter.detach()).all()):
            raise InputError(
                f"expected finite weights, got NaN or infinity in {name!r}, with which every output would be NaN. "
                "Load a checkpoint with finite weights."
            )


def _pattern(track: str) -> re.Pattern[str]:
    try:
        return re.compile(track)
    except re.error as error:
        raise InputError(
            "expected `track` to be 'bias', 'bias+tables', 'scalars' or a regular expression over parameter names, got "
            f"{track!r}: {error}."
        ) from error


def _role(
    shape: tuple[int, ...],
    used: tuple[ParameterUse, ...],
    track: str,
    pattern: re.Pattern[str] | None,
    names: list[str],
) -> Role | None:
    """The role in which a parameter is tracked; None if it is not."""
    if pattern is not None:
        return "named" if any(pattern.search(name) for name in names) else None
    if track == "scalars":
        return "scalar" if len(shape) < 2 and prod(shape) <= LARGEST_SCALARS and not _added(shape, used) else None
    if _added(shape, used):
        return "bias"
    if track == "bias+tables" and used and all(use.kind in ("added", "looked up", "joined") for use in used):
        return "table"
    return None


def _added(shape: tuple[int, ...], used: tuple[ParameterUse, ...]) -> bool:
    every = all(use.kind == "added" and _is_constant_enough(shape, use) for use in used)
    return every and (bool(used) or len(shape) == 1)


def _also_added(shape: tuple[int, ...], used: tuple[ParameterUse, ...]) -> bool:
    return sum(size > 1 for size in shape) <= 1 and any(use.kind in ("added", "nonlinearly added") for use in used)


def _nonlinear(shape: tuple[int, ...], used: tuple[ParameterUse, ...], *, is_complex: bool) -> bool:
    """True if a parameter is not tracked only because what is added is no affine function of it, or complex."""
    kinds = {use.kind for use in used}
    only_added = bool(used) and kinds <= {"added", "nonlinearly added"}
    return (
        only_added
        and (is_complex or "nonlinearly added" in kinds)
        and all(_is_constant_enough(shape, use) for use in used)
    )


def _is_constant_enough(shape: tuple[int, ...], use: ParameterUse) -> bool:
    return use.constant_enough or sum(size > 1 for size in shape) <= 1
