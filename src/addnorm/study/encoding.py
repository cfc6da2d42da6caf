"""Specs to plain values (YAML, JSON), and to the bytes whose hash is a spec's identity."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin

from addnorm.catalogue import Spec
from addnorm.earlier_fields import as_earlier
from addnorm.errors import InputError
from addnorm.fields import type_hints


def encode(instance: object) -> Any:
    """Encode an instance as a plain value for JSON and YAML: every field is written out, `kind` first, but no unset budget.

    Raises:
        InputError: a field holds a number that is not finite, or an object that is not a plain value.
    """
    return _encode(instance, type(instance), "$")


def canonical(instance: object) -> bytes:
    """The canonical JSON of an instance: sorted keys, no white space, floats by `repr`.

    Equal instances have equal bytes on every machine.

    Raises:
        InputError: as `encode`.
    """
    return json.dumps(encode(instance), sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def digest(instance: object) -> str:
    """SHA-256 of the canonical bytes, as 64 hex digits.

    Raises:
        InputError: as `encode`.
    """
    return hashlib.sha256(canonical(instance)).hexdigest()


def _is_omitted(field: Field[Any], value: Any) -> bool:
    """True for a field that later versions added, at its default: what was written before keeps its identity."""
    if not field.metadata.get("omitted_at_default"):
        return False
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return bool(value == default)


def _encode(value: Any, hint: Any, path: str) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return _encode_number(value, hint, path)
    if is_dataclass(value) and not isinstance(value, type):
        hints = type_hints(type(value))
        plain = {"kind": value.kind} if isinstance(value, Spec) else {}
        for field in fields(value):
            if field.init and not _is_omitted(field, getattr(value, field.name)):
                plain[field.name] = _encode(getattr(value, field.name), hints[field.name], f"{path}.{field.name}")
        return as_earlier(type(value), plain)
    if isinstance(value, Mapping):
        return {name: _encode(entry, _entry_hint(hint, 0), f"{path}.{name}") for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_encode(entry, _entry_hint(hint, index), f"{path}[{index}]") for index, entry in enumerate(value)]
    raise InputError(
        f"{path}: expected a number, text, list, mapping or dataclass, got {value!r} of type {type(value).__name__}."
    )


def _encode_number(value: int | float, hint: Any, path: str) -> int | float:
    # Specs made in Python may hold 1 for 1.0, or -0.0. Such specs are equal, so they must be encoded alike.
    # By the annotation, not by the value: a field that allows float is encoded as float, whether it was written as 1,
    # 1.0 or -0.0. Two equal specs with two encodings would have two identities and be trained twice.
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if isinstance(value, int) and (int in members or float not in members):
        return int(value)
    try:
        number = float(value) + 0.0
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{path}: expected a finite number, got {value!r}.")
    return number


def _entry_hint(hint: Any, index: int) -> Any:
    """The annotation of a container's entry; for a union, of its first container."""
    if get_origin(hint) in (Union, UnionType):
        hint = next((member for member in get_args(hint) if get_args(member)), hint)
    members = get_args(hint)
    origin = get_origin(hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return members[1]
    if not members:
        return Any
    return members[0] if members[-1] is Ellipsis else members[min(index, len(members) - 1)]
