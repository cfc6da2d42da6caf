"""Example inputs from a JSON file (`--inputs spec.json`).

The file is one JSON object, from the name of each input to its description:

    {
      "input_ids":   {"shape": [2, 12], "dtype": "int64", "low": 5, "high": 1000},
      "pixel_values": {"shape": [2, 3, 32, 32]},
      "weights":     {"shape": [2, 12], "low": 0, "high": 1},
      "lengths":     {"values": [12, 7], "dtype": "int64"},
      "use_cache":   false
    }

`shape` draws numbers from a fixed seed: whole numbers in [low, high); standard normal floats, or uniform ones in [low, high)
if both are given; `bool` is true everywhere. `values` is used as written. The dtype is that of the model's weights unless
given. Values that are not objects are passed on unchanged. Names are keyword inputs; if all names are numbers ("0", "1", …),
they are positional.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.errors import InputError, UnknownName, did_you_mean

_DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
    "int32": torch.int32,
    "int64": torch.int64,
    "bool": torch.bool,
}
_FIELDS = ("shape", "dtype", "low", "high", "values")


def read_input_spec(path: Path) -> dict[str, Any]:
    """Read the object in a file, without checking its entries.

    Raises:
        InputError: the file cannot be read or holds no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--inputs {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InputError(f"--inputs {path}: expected JSON, got an error: {error}.") from error
    if not isinstance(content, dict) or not content:
        raise InputError(
            f"--inputs {path}: expected a JSON object from input names to descriptions, got {_short(content)}."
        )
    return content


def float_types(model: nn.Module) -> list[torch.dtype]:
    """Return the floating-point types of a model's weights that inputs may have, the first weight's first; float32 if there
    is none."""
    types = dict.fromkeys(each.dtype for each in (*model.parameters(), *model.buffers()))
    return [each for each in types if each in _DTYPES.values() and each.is_floating_point] or [torch.float32]


def make_inputs(spec: Mapping[str, Any], model: nn.Module | None = None) -> tuple[Any, ...] | dict[str, Any]:
    """Make the described inputs: positional ones if all names are numbers, else keyword inputs.

    Args:
        spec: the description.
        model: the model whose weights' type floating-point inputs have if theirs is not described; float32 without one.

    Raises:
        InputError: an entry is wrong; the message has its path.
    """
    # One generator for all entries, in the order of the file: equal files give equal inputs, and two inputs of one
    # shape differ.
    draw = torch.Generator().manual_seed(0)
    default = float_types(model)[0] if model is not None else torch.float32
    made = {name: _entry(name, entry, draw, default) for name, entry in spec.items()}
    positional = [name for name in made if name.isdigit()]
    if not positional:
        return made
    if sorted(made) != [str(index) for index in range(len(made))]:
        raise InputError(
            f"inputs: expected positional names 0, 1, … without gaps and without other names, got {', '.join(made)}."
        )
    return tuple(made[str(index)] for index in range(len(made)))


def _entry(name: str, entry: Any, draw: torch.Generator, default: torch.dtype) -> Any:
    if not isinstance(entry, Mapping):
        return entry
    path = f"$.{name}"
    for field in entry:
        if field not in _FIELDS:
            raise InputError(
                f"inputs: {path} has no field {field!r}.{did_you_mean(field, _FIELDS)} Known: {', '.join(_FIELDS)}."
            )
    if ("shape" in entry) == ("values" in entry):
        raise InputError(f"inputs: {path}: expected either 'shape' or 'values', got {_short(dict(entry))}.")
    given = entry.get("dtype")
    if given is not None and given not in _DTYPES:
        raise UnknownName(f"dtype of input {path}", given, _DTYPES)
    dtype = default if given is None else _DTYPES[given]
    if "values" in entry:
        if "low" in entry or "high" in entry:
            raise InputError(f"inputs: {path}: expected no 'low' and 'high' beside 'values'. Leave them out.")
        return _values(path, entry["values"], dtype)
    return _drawn(path, _shape(path, entry["shape"]), dtype, entry.get("low"), entry.get("high"), draw)


def _values(path: str, values: Any, dtype: torch.dtype) -> Tensor:
    try:
        return torch.tensor(values, dtype=dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"inputs: {path}.values: expected numbers in nested lists of equal lengths, got an error: {error}."
        ) from error


def _shape(path: str, shape: Any) -> list[int]:
    if not isinstance(shape, list) or not all(type(size) is int and size > 0 for size in shape):
        raise InputError(f"inputs: {path}.shape: expected a list of positive whole numbers, got {_short(shape)}.")
    return shape


def _drawn(path: str, shape: list[int], dtype: torch.dtype, low: Any, high: Any, draw: torch.Generator) -> Tensor:
    for field, bound in (("low", low), ("high", high)):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int | float)):
            raise InputError(f"inputs: {path}.{field}: expected a number, got {_short(bound)}.")
    if dtype is torch.bool:
        if low is not None or high is not None:
            raise InputError(
                f"inputs: {path}: expected no 'low' and 'high' for bool, which is true everywhere. Give 'values' for others."
            )
        return torch.ones(shape, dtype=torch.bool)
    if not dtype.is_floating_point:
        least = 0 if low is None else low
        if high is None or int(high) <= int(least):
            raise InputError(
                f"inputs: {path}: expected 'high' above 'low' (0 unless given) for whole numbers in [low, high), got "
                f"{_short(high)}."
            )
        return torch.randint(int(least), int(high), shape, generator=draw, dtype=dtype)
    if (low is None) != (high is None):
        raise InputError(f"inputs: {path}: expected both 'low' and 'high' or neither, got one.")
    if low is None:
        return torch.randn(shape, generator=draw).to(dtype)
    return (low + (high - low) * torch.rand(shape, generator=draw)).to(dtype)


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:80]
