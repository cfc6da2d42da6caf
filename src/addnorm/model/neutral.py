"""The neutral start of a mechanism: settings and parameters with which it equals the plain sibling of its room.

They are read from the mechanism's own `reduces_to`. What equals the plain sibling but cannot leave it is no start: some
parameter must have a gradient there, on a toy model.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from addnorm.catalogue import Spec, room
from addnorm.errors import InputError
from addnorm.model.presets import FIELD_OF_ROOM
from addnorm.model.spec import ModelSpec
from addnorm.reduction import Reducible, Values

PATCHABLE = ("residual", "scores", "values")
"""Rooms whose mechanisms join a trained model."""
Parameters = Mapping[str, Values | Literal["start"]] | Literal["start"]
_PLACE_IN_LIST = re.compile(r"(\.\d+)+$")
"""End of the name of an entry of a list of parameters, all of which have the list's name in a declaration."""
_TOY = ModelSpec(vocab=8, width=8, depth=3, heads=2, kv_heads=2, hidden=8, max_seq=4)


@dataclass(frozen=True, kw_only=True)
class Start:
    """A mechanism at its neutral start."""

    spec: Spec
    parameters: Parameters
    """Values of its own parameters and buffers, by the last part of their names; those that are not named stay at the start."""

    def fill(self, module: nn.Module) -> None:
        """Set the parameters of the mechanism's module."""
        if self.parameters != "start":
            fill(module.state_dict(), self.parameters, {})


def fill(state: Mapping[str, Tensor], parameters: Parameters, start: Mapping[str, Tensor]) -> None:
    """Set those tensors of a state dict that `parameters` names by the last part of their names; "start" takes them from
    `start`, and leaves them as they are if they are not there."""
    with torch.no_grad():
        for name, value in state.items():
            declared = declared_value(name, start.get(name, value), parameters)
            if declared is not None:
                value.copy_(declared)


def declared_value(name: str, start: Tensor, parameters: Parameters) -> Tensor | None:
    """The value that a declaration gives to a parameter; None if it leaves it open.

    Args:
        name: its name in a state dict.
        start: its value at the start.
        parameters: of a `Reduction`.
    """
    if parameters == "start":
        return start
    names = (f".{name}", _PLACE_IN_LIST.sub("", f".{name}"))
    number = next((number for key, number in parameters.items() if any(own.endswith(f".{key}") for own in names)), None)
    if number is None or number == "start":
        return None if number is None else start
    return torch.as_tensor(number, dtype=start.dtype).expand_as(start)


def neutral_start(room_name: str, given: Any) -> Start:
    """Find the neutral start of a mechanism.

    Args:
        room_name: one of `PATCHABLE`.
        given: a spec, a kind, or a mapping with `kind`. Fields that it names stay as they are.

    Raises:
        UnknownName: no such kind.
        InputError: the mechanism has no neutral start with these fields; the message names the kinds that have one.

    Example:
        >>> neutral_start("residual", "rezero").spec
        ReZero(alpha_init=1.0)
    """
    kind, chosen = _named(room_name, given)
    start = next((start for start in _declared(room_name, kind, chosen) if _can_learn(room_name, start)), None)
    if start is None:
        asked = f"{kind!r} with {chosen}" if chosen else repr(kind)
        raise InputError(
            f"{room_name}: expected a mechanism that can start as {_plain(room_name)!r} and learn from there, got {asked}. "
            f"Those that can: {', '.join(neutral_kinds(room_name))}."
        )
    return start


def every_field(spec: Spec) -> dict[str, Any]:
    """A spec as a mapping with its kind and every field, all of which `neutral_start` then keeps."""
    return {"kind": spec.kind} | {field.name: getattr(spec, field.name) for field in fields(spec)}


@cache
def neutral_kinds(room_name: str) -> tuple[str, ...]:
    """Kinds of a room that have a neutral start with some settings."""
    return tuple(
        kind
        for kind in room(room_name).kinds()
        if any(_can_learn(room_name, start) for start in _declared(room_name, kind, {}))
    )


def _plain(room_name: str) -> str:
    """The kind of the room in the ordinary Transformer, which is the default of `ModelSpec`."""
    spec: Spec = getattr(_TOY, FIELD_OF_ROOM[room_name])
    return spec.kind


def _named(room_name: str, given: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(given, Spec):
        defaults = type(given)()
        chosen = {field.name: getattr(given, field.name) for field in fields(given)}
        return given.kind, {name: value for name, value in chosen.items() if value != getattr(defaults, name)}
    if isinstance(given, Mapping) and isinstance(given.get("kind"), str):
        chosen = {name: value for name, value in given.items() if name != "kind"}
        room(room_name).make(given["kind"], **chosen)  # refuses fields that it does not have
        return given["kind"], chosen
    if isinstance(given, str):
        room(room_name).spec_class(given)
        return given, {}
    raise InputError(f"{room_name}: expected a kind, a mapping with `kind`, or a spec, got {given!r}.")


def _declared(room_name: str, kind: str, chosen: Mapping[str, Any]) -> Iterator[Start]:
    """Starts that the mechanism declares to equal the plain sibling, without those that contradict what the user chose."""
    cls: Any = room(room_name).spec_class(kind)
    plain = {room_name: _plain(room_name)}
    for reduction in (cls.reduces_to() or ()) if issubclass(cls, Reducible) else ():
        fits = all(chosen.get(name, value) == value for name, value in reduction.settings.items())
        fits = fits and reduction.settings.get("window") != 1  # equal, but because earlier layers are never read
        if dict(reduction.to) == plain and not reduction.given and reduction.equal == "exactly" and fits:
            spec = room(room_name).make(kind, **{**reduction.settings, **chosen})
            yield Start(spec=spec, parameters=reduction.parameters)


@cache
def _toy_tokens() -> Tensor:
    return torch.randint(_TOY.vocab, (2, _TOY.max_seq), generator=torch.Generator().manual_seed(0))


def _can_learn(room_name: str, start: Start) -> bool:
    """True if some parameter of the mechanism has a gradient at the start."""
    field = FIELD_OF_ROOM[room_name]
    changes: dict[str, Any] = {field: start.spec}
    # Equality alone is no start: a gate times a branch of zeros equals the plain sibling too, and neither factor would
    # ever get a gradient.
    model = replace(_TOY, **changes).build()
    mechanism: nn.Module | None = getattr(model, field)
    if mechanism is None or not any(True for _ in mechanism.parameters()):
        return False
    start.fill(mechanism)
    with torch.enable_grad():
        model(_toy_tokens()).square().sum().backward()
    gradients = [parameter.grad for parameter in mechanism.parameters() if parameter.grad is not None]
    return any(bool(gradient.any()) for gradient in gradients)
