"""Fields as earlier versions wrote them: they are read as before, and written so that identities of plans and runs stay.

A field that took settings or null, and is now a kind of a room, says so in its metadata: `{"earlier_field": "gau"}` on a field
`block` means that the sibling `gau` was written as `gau: {settings}`, and `gau: null` for the default.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from addnorm.errors import InputError

_EARLIER = "earlier_field"


def as_now(cls: Any, given: Mapping[Any, Any]) -> dict[Any, Any]:
    """Rename the fields of a mapping that an earlier version wrote otherwise.

    Args:
        cls: the dataclass whose fields the mapping has.
        given: plain values by field.

    Raises:
        InputError: a field in both forms.

    Example:
        >>> from addnorm import ModelSpec
        >>> as_now(ModelSpec, {"gau": {"key_dim": 64}, "heads": 1})
        {'heads': 1, 'block': {'kind': 'gau', 'key_dim': 64}}
    """
    now = dict(given)
    for field in fields(cls):
        earlier = field.metadata.get(_EARLIER)
        if earlier not in now or earlier is None:
            continue
        value = now.pop(earlier)
        if value is None:
            now.setdefault(field.name, {"kind": _default(field).kind})
        elif field.name in now:
            raise InputError(
                f"{earlier}: expected it or {field.name}, got both. Write {field.name}: {{kind: {earlier}, …}} alone."
            )
        else:
            now[field.name] = {"kind": earlier, **value} if isinstance(value, Mapping) else value
    return now


def as_earlier(cls: Any, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Write fields as earlier versions did; the inverse of `as_now`.

    Example:
        >>> from addnorm import ModelSpec
        >>> as_earlier(ModelSpec, {"heads": 1, "block": {"kind": "gau", "key_dim": 64}})
        {'heads': 1, 'gau': {'key_dim': 64}}
    """
    written = dict(plain)
    for field in fields(cls):
        earlier = field.metadata.get(_EARLIER)
        if earlier is None:
            continue
        settings = written.get(field.name, {})
        written[earlier] = None
        if settings.get("kind") == earlier:
            del written[field.name]
            written[earlier] = {name: value for name, value in settings.items() if name != "kind"}
    return written


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
