"""A spec as paths and values."""

from collections.abc import Mapping
from typing import Any

from addnorm.fields import flat_fields

NULL = "null"
"""Text of a setting without a value, as a study file writes it."""


def flat(value: Mapping[str, Any]) -> dict[str, str]:
    """Nested mappings as path and text: `training.optimizer.betas`, `[0.9, 0.95]`."""
    return {path: _text(entry) for path, entry in flat_fields(value)}


def differing(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """The paths at which specs differ, each with the value of every spec; `–` where a spec has no such path.

    Args:
        specs: specs by name.
    """
    lines = {name: flat(spec) for name, spec in specs.items()}
    paths = dict.fromkeys(path for of in lines.values() for path in of)
    by_path = {path: {name: of.get(path, "–") for name, of in lines.items()} for path in paths}
    return {path: values for path, values in by_path.items() if len(set(values.values())) > 1}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return NULL if value is None else f"{value:g}" if isinstance(value, float) else str(value)
