"""Variants of a study file: fields of a preset, fields shared by all variants, and fields of each variant."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from addnorm.earlier_fields import as_now
from addnorm.model.presets import PRESETS
from addnorm.model.spec import ModelSpec
from addnorm.study.decoding import UNREADABLE, construct, read, read_fields
from addnorm.study.definition import ONE_LENGTH, Training
from addnorm.study.encoding import encode
from addnorm.study.overlay import LENGTHS, lay_over
from addnorm.study.problems import Problems, nearest, shown

MODEL_FIELDS = ("preset", *(field.name for field in fields(ModelSpec)))
"""Names that the shared model of a study file may set."""
VARIANT_FIELDS = (*MODEL_FIELDS, "title", "training", "grid", "tune")
"""Names that a variant of a study file may set."""
_OF_THE_STUDY = ("corpus", "tokenizer", "seeds", "margin")


@dataclass(frozen=True)
class Variants:
    """Decoded variants by name, in the order of the file."""

    models: dict[str, ModelSpec] = field(default_factory=dict)
    training: dict[str, Training] = field(default_factory=dict)
    """Training of the variants that set any of it."""
    titles: dict[str, str] = field(default_factory=dict)
    """Titles of the variants that have one."""


def read_variants(model: object, variants: object, training: Training | None, problems: Problems) -> Variants:
    """Decode the variants, without those that have problems.

    The base of a variant is its own preset, else the shared preset, else the defaults of `ModelSpec`. The fields under `model`
    replace those of the base, and the variant's own fields replace both. Its `training` replaces fields of the study's.

    Args:
        model: the content of `model`, or None.
        variants: the content of `variants`.
        training: the study's training; None if it has problems, and the variants' own is not read.
        problems: receives the problems.
    """
    before = len(problems)
    shared = _own_fields(model, "$.model", MODEL_FIELDS, problems)
    base = _preset(shared, {}, "$.model", problems)
    if len(problems) == before:
        # Read apart from the variants, so that a problem shared by all is reported once and with its own path.
        read_fields(ModelSpec, lay_over(base, _model_fields(shared)), "$.model", problems)
    if not isinstance(variants, Mapping):
        problems.add("$.variants", f"expected a mapping from names to models, got {shown(variants)}.")
    decoded = Variants()
    if len(problems) > before or not isinstance(variants, Mapping):
        return decoded
    for name, entry in variants.items():
        path = f"$.variants.{name}"
        if not isinstance(name, str):
            problems.add("$.variants", f"expected names that are texts, got {shown(name)}. Put it in quotes.")
            continue
        own = _own_fields(entry, path, VARIANT_FIELDS, problems)
        if training is not None and (own_training := own.get("training")) is not None:
            settings = read_training(own_training, f"{path}.training", problems, over=training)
            if settings is not UNREADABLE:
                decoded.training[name] = settings
        if own.get("title") is not None:
            title = read(str, own["title"], f"{path}.title", problems)
            if title is not UNREADABLE:
                decoded.titles[name] = title
        base = _preset(own, shared, path, problems)
        if base is not UNREADABLE:
            whole = lay_over(lay_over(base, _model_fields(shared)), _model_fields(own))
            spec = read(ModelSpec, whole, path, problems)
            if spec is not UNREADABLE:
                decoded.models[name] = spec
    return decoded


def read_training(content: object, path: str, problems: Problems, over: Training | None = None) -> Any:
    """Decode a training of a study file; `UNREADABLE` if it has problems.

    Args:
        content: the content of `training`.
        path: its place, for messages.
        problems: receives the problems, also of a training that has both steps and a budget, or two budgets.
        over: the study's training, whose fields a variant's own replace.
    """
    if not isinstance(content, Mapping):
        return read(Training, content, path, problems)
    given = [name for name in LENGTHS if content.get(name) is not None]
    if len(given) > 1:
        problems.add(path, f"expected {ONE_LENGTH}, got {' and '.join(given)}. Keep one.")
        return UNREADABLE
    whole = content if over is None else lay_over(training_content(over), content, "training")
    return read(Training, whole, path, problems)


def training_content(training: Training) -> dict[str, Any]:
    """A training as the content of a study file: with `steps` or with a budget."""
    content: dict[str, Any] = encode(training)
    return {name: value for name, value in content.items() if name != "steps" or not training.budget}


def _own_fields(value: object, path: str, known: tuple[str, ...], problems: Problems) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.add(path, f"expected a mapping with the fields of a model, got {shown(value)}.")
        return {}
    given = construct(lambda: as_now(ModelSpec, value), path, problems)
    if given is UNREADABLE:
        return {}
    for name in given:
        if name in known:
            continue
        if name in _OF_THE_STUDY:
            problems.add(
                path,
                f"expected no {name!r}: variants that are ranked together have it in common. Set $.{name}, or make a second "
                "study.",
            )
        else:
            problems.add(path, f"ModelSpec has no field {shown(name)}{nearest(name, known)}")
    return {name: entry for name, entry in given.items() if name in known}


def _preset(own: Mapping[str, Any], shared: Mapping[str, Any], path: str, problems: Problems) -> Any:
    if "preset" not in own and "preset" not in shared:
        return as_now(ModelSpec, encode(ModelSpec()))
    name = own["preset"] if "preset" in own else shared["preset"]
    if not isinstance(name, str) or name not in PRESETS:
        problems.add(f"{path}.preset", f"no preset {shown(name)}{nearest(name, PRESETS)}")
        return UNREADABLE
    return as_now(ModelSpec, encode(PRESETS[name]()))


def _model_fields(own: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in own.items() if name in MODEL_FIELDS and name != "preset"}
