"""One plain value laid over another: a profile over its study, settings over both, a variant over its preset.

Mappings merge name by name; anything else replaces what was there. A mapping with `kind` is a sibling written out, so it
replaces too: the fields of the sibling before would mean nothing to it. A mapping without `kind` changes the sibling that
is there, also where that is written short (`residual: rezero`, then `alpha_init: 0.1`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.study.codec import SHORT_FORMS, encode, read
from addnorm.study.problems import Problems, nearest, shown
from addnorm.study.strict_yaml import read_yaml

Plain = dict[str, Any]

_SHORT_FIELDS = {name: hint for name, hint in get_type_hints(ModelSpec).items() if hint in SHORT_FORMS}


@dataclass(frozen=True)
class Setting:
    """One `a.b=c` of the command line."""

    text: str
    """As given."""
    names: tuple[str, ...]
    value: Any


def lay_over(below: Any, above: Any, name: str = "") -> Any:
    """What is there when `above` is laid over `below`; neither is changed.

    Args:
        name: of the field that holds both; some fields have a short form of their own (`dropout: 0.1`).
    """
    if not isinstance(above, Mapping) or isinstance(above.get("kind"), str):
        return above
    below = _written_out(below, name)
    if not isinstance(below, Mapping):
        return above
    return {**below, **{key: lay_over(below.get(key), entry, str(key)) for key, entry in above.items()}}


def lay_over_study(study: Plain, above: Mapping[str, Any], where: str) -> Plain:
    """A study file's content with a profile or a setting laid over it; a list of variants keeps only those, in its order.

    Raises:
        InputError: the list names a variant that is not there, or one twice.
    """
    names, variants = above.get("variants"), study.get("variants")
    if isinstance(names, list) and isinstance(variants, Mapping):
        for index, name in enumerate(names):
            if not isinstance(name, str) or name not in variants:
                raise InputError(f"{where}: $.variants: no variant {shown(name)}{nearest(name, variants)}")
            if name in names[:index]:
                raise InputError(f"{where}: $.variants: {name!r} is named twice. Keep one.")
        study = {**study, "variants": {name: variants[name] for name in names}}
        above = {key: value for key, value in above.items() if key != "variants"}
    merged: Plain = lay_over(study, above)
    return merged


def parse_setting(text: str) -> Setting:
    """Take `a.b=c` apart; the value is read as YAML.

    Raises:
        InputError: no `=`, an empty name, or a value that is no YAML.
    """
    path, equals, value = text.partition("=")
    names = tuple(path.strip().split("."))
    if not equals or not all(names):
        raise InputError(f"a setting is written a.b=value, got {text!r}. For instance: --set training.steps=200")
    return Setting(text, names, read_yaml(value, f"--set {text}"))


def apply_settings(study: Plain, settings: Sequence[Setting]) -> Plain:
    """The study with the settings laid over, first to last. Names are checked by whoever reads the result, except that a
    setting makes no new variant and nothing beneath a list or a number.

    Raises:
        InputError: such a setting.
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
                f"--set {setting.text}: {path} is {shown(here)} and has nothing beneath it. "
                f"Set it as a whole: --set {path.removeprefix('$.')}=…"
            )
    value = setting.value
    for key in reversed(keys):
        value = {key: value}
    return value


def _first_key(names: tuple[str, ...], here: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The longest known key that the names begin with (a variant's name may hold dots), and the names after it."""
    for count in range(len(names), 0, -1):
        key = ".".join(names[:count])
        if key in here:
            return key, names[count:]
    return names[0], names[1:]


def _written_out(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return {"kind": value}
    if name in _SHORT_FIELDS and isinstance(value, bool | int | float):
        unsaid = Problems()  # what does not fit stays as it is, for the reader of the whole to complain about
        made = read(_SHORT_FIELDS[name], value, "$", unsaid)
        return value if len(unsaid) else encode(made)
    return value
