"""Variants of a study file: fields of a preset, fields shared by all variants, and fields of each variant."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from addnorm.model.presets import PRESETS
from addnorm.model.spec import ModelSpec
from addnorm.study.decoding import UNREADABLE, read, read_fields
from addnorm.study.encoding import encode
from addnorm.study.overlay import lay_over
from addnorm.study.problems import Problems, nearest, shown


def read_variants(model: object, variants: object, problems: Problems) -> dict[str, ModelSpec]:
    """Decode the models by name, without those that have problems.

    The base of a variant is its own preset, else the shared preset, else the defaults of `ModelSpec`. The fields under `model`
    replace those of the base, and the variant's own fields replace both.

    Args:
        model: the content of `model`, or None.
        variants: the content of `variants`.
        problems: receives the problems.
    """
    before = len(problems)
    shared = _own_fields(model, "$.model", problems)
    base = _preset(shared, {}, "$.model", problems)
    if len(problems) == before:
        # Read apart from the variants, so that a problem shared by all is reported once and with its own path.
        read_fields(ModelSpec, lay_over(base, _without_preset(shared)), "$.model", problems)
    if not isinstance(variants, Mapping):
        problems.add("$.variants", f"expected a mapping from names to models, got {shown(variants)}.")
    if len(problems) > before or not isinstance(variants, Mapping):
        return {}
    models = {}
    for name, entry in variants.items():
        path = f"$.variants.{name}"
        if not isinstance(name, str):
            problems.add("$.variants", f"expected names that are texts, got {shown(name)}. Put it in quotes.")
            continue
        own = _own_fields(entry, path, problems)
        base = _preset(own, shared, path, problems)
        if base is not UNREADABLE:
            whole = lay_over(lay_over(base, _without_preset(shared)), _without_preset(own))
            decoded = read(ModelSpec, whole, path, problems)
            if decoded is not UNREADABLE:
                models[name] = decoded
    return models


def _own_fields(value: object, path: str, problems: Problems) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.add(path, f"expected a mapping with the fields of a model, got {shown(value)}.")
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
