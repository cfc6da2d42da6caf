"""A study file's variants: a preset, what all variants share, and what each has of its own."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from addnorm.model.presets import PRESETS
from addnorm.model.spec import ModelSpec
from addnorm.study.codec import UNREADABLE, encode, read, read_fields
from addnorm.study.overlay import lay_over
from addnorm.study.problems import Problems, nearest, shown


def read_variants(model: object, variants: object, problems: Problems) -> dict[str, ModelSpec]:
    """The models by name, without those that have problems.

    A variant is its own preset, else the model's, else `ModelSpec` as it stands; over that lie the model's fields, and
    over those its own.

    Args:
        model: what the file says under `model`, or None.
        variants: what it says under `variants`.
        problems: takes what is wrong.
    """
    before = len(problems)
    shared = _own_fields(model, "$.model", problems)
    base = _preset(shared, {}, "$.model", problems)
    if len(problems) == before:
        # By itself, so that a mistake that all variants share is reported once and in its place.
        read_fields(ModelSpec, lay_over(base, _without_preset(shared)), "$.model", problems)
    if not isinstance(variants, Mapping):
        problems.add("$.variants", f"must be a mapping of names to models, got {shown(variants)}.")
    if len(problems) > before or not isinstance(variants, Mapping):
        return {}
    found = {}
    for name, entry in variants.items():
        path = f"$.variants.{name}"
        if not isinstance(name, str):
            problems.add("$.variants", f"names must be text, got {shown(name)}. Put it in quotes.")
            continue
        own = _own_fields(entry, path, problems)
        base = _preset(own, shared, path, problems)
        if base is not UNREADABLE:
            whole = lay_over(lay_over(base, _without_preset(shared)), _without_preset(own))
            made = read(ModelSpec, whole, path, problems)
            if made is not UNREADABLE:
                found[name] = made
    return found


def _own_fields(value: object, path: str, problems: Problems) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.add(path, f"must be a mapping of a model's fields, got {shown(value)}.")
        return {}
    known = ("preset", *(field.name for field in fields(ModelSpec)))
    for name in value:
        if name not in known:
            problems.add(path, f"ModelSpec has no field {shown(name)}{nearest(name, known)}")
    return {name: entry for name, entry in value.items() if name in known}


def _preset(own: Mapping[str, Any], shared: Mapping[str, Any], path: str, problems: Problems) -> Any:
    if "preset" not in own and "preset" not in shared:
        return encode(ModelSpec())
    name = own["preset"] if "preset" in own else shared["preset"]
    if not isinstance(name, str) or name not in PRESETS:
        problems.add(f"{path}.preset", f"no preset {shown(name)}{nearest(name, PRESETS)}")
        return UNREADABLE
    return encode(PRESETS[name]())


def _without_preset(own: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in own.items() if name != "preset"}
