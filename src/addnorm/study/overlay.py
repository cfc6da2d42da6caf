"""Overlay of plain values: a profile over its study, settings over both, a variant over its preset.

Mappings are merged name by name; any other value replaces the one below. A mapping with `kind` is a complete sibling and
replaces the one below, whose fields may not exist in it. A mapping without `kind` changes the sibling below, also one in
short form (`residual: rezero` below `alpha_init: 0.1`). The length of a training (`steps` or a budget) replaces another one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.strict_yaml import read_yaml
from addnorm.study.decoding import SHORT_FORMS, read
from addnorm.study.definition import BUDGETS
from addnorm.study.encoding import encode
from addnorm.study.problems import Problems, nearest, shown

LENGTHS = ("steps", *BUDGETS)
"""Fields of a training that set the length of a run; one of them is given."""
Plain = dict[str, Any]

_SHORT_FIELDS = {name: hint for name, hint in get_type_hints(ModelSpec).items() if hint in SHORT_FORMS}


@dataclass(frozen=True)
class Setting:
    """A setting of the command line, `a.b=c`."""

    text: str
    """The text of the argument."""
    names: tuple[str, ...]
    value: Any


def lay_over(below: Any, above: Any, name: str = "") -> Any:
    """Merge `above` over `below`; neither is changed.

    Args:
        below: a plain value.
        above: the plain value that takes precedence.
        name: name of the field that holds both, which may have a short form (`dropout: 0.1`).
    """
    # A complete sibling (with `kind`) replaces; a mapping without it changes. Merged with the one below, `kind: rezero`
    # over `kind: scale, alpha: 0.2` would keep an `alpha` that ReZero does not have.
    if not isinstance(above, Mapping) or isinstance(above.get("kind"), str):
        return above
    below = _written_out(below, name)
    if not isinstance(below, Mapping):
        return above
    # `steps` and the budgets are one decision. A variant that sets `tokens` over a study's `steps: 500` would otherwise
    # have both, and be refused for a field that it never named.
    if name == "training" and any(above.get(length) is not None for length in LENGTHS):
        below = {key: entry for key, entry in below.items() if key not in LENGTHS}
    return {**below, **{key: lay_over(below.get(key), entry, str(key)) for key, entry in above.items()}}


def lay_over_study(study: Plain, above: Mapping[str, Any], where: str) -> Plain:
    """Merge a profile or a setting over the content of a study file. A list of variants selects them, in its order.

    Raises:
        InputError: the list has an unknown variant, or repeats one.
    """
    names, variants = above.get("variants"), study.get("variants")
    if isinstance(names, list) and isinstance(variants, Mapping):
        for index, name in enumerate(names):
            if not isinstance(name, str) or name not in variants:
                raise InputError(f"{where}: $.variants: no variant {shown(name)}{nearest(name, variants)}")
            if name in names[:index]:
                raise InputError(f"{where}: $.variants: expected each variant once, got {name!r} twice. Keep one.")
        study = {**study, "variants": {name: variants[name] for name in names}}
        above = {key: value for key, value in above.items() if key != "variants"}
    merged: Plain = lay_over(study, above)
    return merged


def parse_setting(text: str) -> Setting:
    """Parse a setting `a.b=c`; its value is YAML.

    Raises:
        InputError: no `=`, an empty name, or a value that is not YAML.
    """
    path, equals, value = text.partition("=")
    names = tuple(path.strip().split("."))
    if not equals or not all(names):
        raise InputError(f"--set: expected NAME.NAME=VALUE, got {text!r}. For example: --set training.steps=200")
    return Setting(text, names, read_yaml(value, f"--set {text}"))


def apply_settings(study: Plain, settings: Sequence[Setting]) -> Plain:
    """Merge settings over a study, first to last. Names are checked when the result is decoded.

    Raises:
        InputError: a setting adds a variant, or a name below a list or a number.
    """
    for setting in settings:
        study = lay_over_study(study, _nested(setting, study), f"--set {setting.text}")
    return study


def _nested(setting: Setting, study: Plain) -> Any:
    names, here, path = setting.names, study, "$"
    keys: list[str] = []
    while names:
        key, names = _first_key(names, here)
        if path == "$.variants" and key not in here:
            raise InputError(f"--set {setting.text}: {path}: no variant {key!r}{nearest(key, here)}")
        keys.append(key)
        path += f".{key}"
        here = _written_out(here.get(key), key)
        if here is None:
            here = {}
        if names and not isinstance(here, Mapping):
            raise InputError(
                f"--set {setting.text}: {path}: expected a mapping, got {shown(here)}. "
                f"Set it as a whole: --set {path.removeprefix('$.')}=…"
            )
    value = setting.value
    for key in reversed(keys):
        value = {key: value}
    return value


def _first_key(names: tuple[str, ...], here: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The longest known key that begins the names (a variant's name may contain dots), and the names after it."""
    # Longest first: `variants.base, depth 1.5.dropout` has a dot in the name of a point. A shorter name that is known
    # too would make the longer one unreachable.
    for count in range(len(names), 0, -1):
        key = ".".join(names[:count])
        if key in here:
            return key, names[count:]
    return names[0], names[1:]


def _written_out(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return {"kind": value}
    if name in _SHORT_FIELDS and isinstance(value, bool | int | float):
        problems = Problems()  # a wrong value is returned unchanged and reported when the whole study is decoded
        expanded = read(_SHORT_FIELDS[name], value, "$", problems)
        return value if len(problems) else encode(expanded)
    return value
