"""Which numbers of a model the audit follows, and where each stands in one long vector delta.

What is followed is decided by use, not by name (a causal mask may be called `bias`, a bias may be called `u`). The
model runs once and every use of every parameter is seen, through views, slices and concatenations (`uses.py`). A
parameter is

bias      if each of its uses adds it to data: as an operand of + or -, or as the bias of a linear map, a
          convolution or a norm; and if, added to data of three or more axes, it is constant along the first axis and
          at least one more (so a learned position table, which varies along the positions, is none). One axis always
          makes a bias.
table     if it is looked up (an embedding), or added or concatenated without being a bias: position tables,
          relative-position tables, class tokens.
scalar    if it is none of these, has no or one axis and at most 64 numbers: residual scales, temperatures, exponents.

`track` chooses: "bias"; "bias+tables"; "scalars"; or a regular expression searched for in the names, whatever the use.
Tables of up to 1024 numbers are followed entry by entry, larger ones only as their common row: the change that adds
one vector to every row (along the last axis). Names of one shared parameter are aliases of one entry. Unused
parameters are not followed.
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
from addnorm.redundancy.execution.inputs import bind
from addnorm.redundancy.execution.parameter_uses import Use, uses

Role = Literal["bias", "table", "scalar", "named"]
Coordinates = Literal["entries", "common row"]

LARGEST_TABLE = 1024
"""Numbers of a table up to which every entry is followed."""
LARGEST_SCALARS = 64
"""Numbers of a parameter up to which it counts as learned scalars."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One followed parameter."""

    name: str
    """Its first name in the model."""
    aliases: tuple[str, ...]
    """All its names, the first included."""
    shape: tuple[int, ...]
    """Of the parameter."""
    coordinates: Coordinates
    """`entries`: one coordinate per number; `common row`: one per column, added to every row."""
    role: Role
    offset: int
    """Where its coordinates start in the vector of all."""

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return prod(self.shape) if self.coordinates == "entries" else self.shape[-1]

    @property
    def coordinate_shape(self) -> tuple[int, ...]:
        """Shape in which a change of this entry is given: the parameter's, or one row of it."""
        return self.shape if self.coordinates == "entries" else self.shape[-1:]


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """Everything followed in one model. A change `delta` is a dict from name to a tensor of `coordinate_shape`;
    absent means zero.
    """

    entries: tuple[Entry, ...]
    unused: tuple[str, ...] = ()
    """Parameters that would be followed if the model's forward pass read them."""

    @cached_property
    def by_name(self) -> dict[str, Entry]:
        """Every alias to its entry."""
        return {alias: entry for entry in self.entries for alias in entry.aliases}

    def __getitem__(self, name: str) -> Entry:
        return self.by_name[name]

    @property
    def names(self) -> tuple[str, ...]:
        """First names, in the order of the vector."""
        return tuple(entry.name for entry in self.entries)

    @property
    def size(self) -> int:
        """Number of coordinates of all entries."""
        return sum(entry.size for entry in self.entries)

    def flatten(self, delta: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """A change as one float64 vector of `size` numbers."""
        vector = torch.zeros(self.size, dtype=torch.float64)
        for name, change in delta.items():
            entry = self[name]
            vector[entry.offset : entry.offset + entry.size] = change.detach().reshape(-1).to("cpu", torch.float64)
        return vector

    def split(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """The reverse of `flatten`, every entry included."""
        return {
            entry.name: vector[entry.offset : entry.offset + entry.size].reshape(entry.coordinate_shape)
            for entry in self.entries
        }

    def moved(self, model: nn.Module, delta: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """New tensors for the changed parameters under all their names, for `torch.func.functional_call` or
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


def follow(model: nn.Module, inputs: object, *, track: str = "bias") -> Tracked:
    """Decide what to follow by running the model once, without gradients and in evaluation mode, on a copy.

    Args:
        model: left as it is.
        inputs: example inputs that the model accepts (see `inputs.bind`).
        track: "bias", "bias+tables", "scalars" or a regular expression over parameter names.

    Raises:
        InputError: the inputs do not fit the model, a weight is not finite, parameters lie on several devices or share
            memory, or `track` is no regular expression.
    """
    _usable(model)
    seen = uses(model, bind(inputs))
    pattern = None if track in ("bias", "bias+tables", "scalars") else _pattern(track)
    aliases: dict[int, list[str]] = {}
    parameters: dict[int, nn.Parameter] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(parameter), []).append(name)
        parameters[id(parameter)] = parameter
    held = [(name, tensor, _memory(tensor)) for name, tensor in _held(model)]
    entries: list[Entry] = []
    unused: list[str] = []
    offset = 0
    for key, names in aliases.items():
        shape = tuple(parameters[key].shape)
        if not parameters[key].is_floating_point() or 0 in shape:
            continue
        used = seen.get(names[0], ())
        role = _role(shape, used, track, pattern, names)
        if role is None:
            continue
        if not used:
            unused.append(names[0])
            continue
        whole = role != "table" or prod(shape) <= LARGEST_TABLE
        entry = Entry(
            name=names[0],
            aliases=tuple(names),
            shape=shape,
            coordinates="entries" if whole else "common row",
            role=role,
            offset=offset,
        )
        _check_alone(parameters[key], names, held)
        entries.append(entry)
        offset += entry.size
    return Tracked(entries=tuple(entries), unused=tuple(unused))


def _check_alone(
    parameter: nn.Parameter, names: list[str], held: list[tuple[str, torch.Tensor, tuple[int, int, int]]]
) -> None:
    """Refuse a parameter whose memory another tensor of the model uses too: a step of training would change both."""
    mine = _memory(parameter)
    for other, tensor, theirs in held:
        if tensor is not parameter and mine[0] == theirs[0] and mine[1] < theirs[2] and theirs[1] < mine[2]:
            raise InputError(
                f"an audit moves parameters one by one, but {names[0]} and {other} are two names of the same memory without "
                "being one parameter. Assign the parameter itself under both names, or clone one."
            )


def _held(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors of a model: parameters, buffers, and those in plain attributes."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)
    for path, module in model.named_modules():
        for field, value in vars(module).items():
            if field not in ("_parameters", "_buffers", "_modules"):
                name = f"{path}.{field}".removeprefix(".")
                yield from ((name, leaf) for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _memory(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Its storage, and the first entry used and the one behind the last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    first = int(tensor.storage_offset())
    return tensor.untyped_storage().data_ptr(), first, first + last + 1 if tensor.numel() else first


def _usable(model: nn.Module) -> None:
    devices = sorted({str(parameter.device) for parameter in model.parameters()})
    if len(devices) > 1:
        raise InputError(
            f"an audit needs all parameters on one device; they are on {', '.join(devices)}. Move the model first, for "
            "example model.to('cpu')."
        )
    for name, parameter in model.named_parameters():
        if parameter.device.type != "meta" and not bool(torch.isfinite(parameter).all()):
            raise InputError(
                f"an audit needs finite weights; {name} holds NaN or infinity, so every output would be NaN. "
                "Load a sound checkpoint first."
            )


def _pattern(track: str) -> re.Pattern[str]:
    try:
        return re.compile(track)
    except re.error as error:
        raise InputError(
            "`track` is 'bias', 'bias+tables', 'scalars' or a regular expression over parameter names; "
            f"{track!r} arrived: {error}."
        ) from error


def _role(
    shape: tuple[int, ...], used: tuple[Use, ...], track: str, pattern: re.Pattern[str] | None, names: list[str]
) -> Role | None:
    """The role in which a parameter is followed; None if it is not."""
    if pattern is not None:
        return "named" if any(pattern.search(name) for name in names) else None
    if track == "scalars":
        return "scalar" if len(shape) < 2 and prod(shape) <= LARGEST_SCALARS and not _added(shape, used) else None
    if _added(shape, used):
        return "bias"
    if track == "bias+tables" and used and all(use.kind in ("added", "looked up", "joined") for use in used):
        return "table"
    return None


def _added(shape: tuple[int, ...], used: tuple[Use, ...]) -> bool:
    every = all(use.kind == "added" and use.constant_enough for use in used)
    return every and (bool(used) or len(shape) == 1)
