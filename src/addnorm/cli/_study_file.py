"""The fields of a study file as tables, from their JSON schema."""

import json
from collections.abc import Mapping
from typing import Any

Row = tuple[str, str, str, str]
"""Field, value in words, default, meaning."""


def sections(schema: Mapping[str, Any]) -> list[tuple[str, str, list[Row]]]:
    """Title, description and fields of every part of a study file: the file, training, tuning, variant, and every kind."""
    parts = [
        ("Study", schema),
        *((name.capitalize(), schema["$defs"][name]) for name in ("training", "tuning", "variant")),
    ]
    found = [(title, part["description"], _rows(part["properties"])) for title, part in parts]
    for room, of in schema["$defs"].items():
        kinds = [
            each["properties"] for each in of.get("anyOf", ()) if "const" in each.get("properties", {}).get("kind", {})
        ]
        rows = [
            (f"{kind['kind']['const']}.{field}", value, default, meaning)
            for kind in kinds
            for field, value, default, meaning in _rows({name: kind[name] for name in kind if name != "kind"})
        ]
        if kinds:
            names = ", ".join(f"`{kind['kind']['const']}`" for kind in kinds)
            found.append((room.capitalize(), f"{of['description']} Kinds: {names}.", rows))
    return found


def _rows(properties: Mapping[str, Any]) -> list[Row]:
    rows: list[Row] = []
    for name, entry in properties.items():
        rows.append((name, entry.get("$comment", ""), _default(entry), entry.get("description", "")))
    return rows


def _default(entry: Mapping[str, Any]) -> str:
    if "default" not in entry:
        return ""
    value = entry["default"]
    return (
        str(value["kind"]) if isinstance(value, Mapping) and "kind" in value else json.dumps(value, ensure_ascii=False)
    )
