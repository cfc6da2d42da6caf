"""A spec as paths and values."""

from collections.abc import Mapping
from typing import Any


def flat(value: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Nested mappings as path and text: `training.optimizer.betas`, `[0.9, 0.95]`."""
    fields: dict[str, str] = {}
    for name, entry in value.items():
        here = f"{path}.{name}" if path else str(name)
        if isinstance(entry, Mapping):
            fields.update(flat(entry, here))
        else:
            fields[here] = _text(entry)
    return fields


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
