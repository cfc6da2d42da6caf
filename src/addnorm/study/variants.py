"""Variants of a study file: fields of a preset, fields shared by all variants, and fields of each variant."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from addnorm.catalogue import MECHANISM_ROOMS, ROOMS
from addnorm.earlier_fields import as_now
from addnorm.errors import InputError
from addnorm.model.neutral import PATCHABLE, neutral_start
from addnorm.model.presets import PRESETS
from addnorm.model.spec import ModelSpec
from addnorm.study.decoding import UNREADABLE, construct, read, read_fields
from addnorm.study.definition import ONE_LENGTH, AnyModel, Training
from addnorm.study.encoding import encode
from addnorm.study.foreign import ForeignSpec
from addnorm.study.overlay import LENGTHS, lay_over
from addnorm.study.problems import Problems, nearest, shown

MODEL_FIELDS = ("preset", *(field.name for field in fields(ModelSpec)))
"""Names that a model of this library may set."""
FOREIGN_FIELDS = {"from": ("from", "patch"), "python": ("python", "options", "objective")}
"""Names that a model of others may set, by the one that says whose it is."""
ALL_MODEL_FIELDS = tuple(dict.fromkeys((*MODEL_FIELDS, *(name for of in FOREIGN_FIELDS.values() for name in of))))
"""Names that the shared model of a study file may set."""
NOT_OF_MODEL = ("title", "training", "grid", "tune")
"""Names that a variant may set in addition to those of its model."""
VARIANT_FIELDS = (*ALL_MODEL_FIELDS, "model", *NOT_OF_MODEL)
"""Names that a variant of a study file may set."""
_OF_THE_STUDY = ("corpus", "tokenizer", "seeds", "margin")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A decoded variant."""

    model: AnyModel
    training: Training | None = None
    """Its own training; None for the study's."""
    title: str | None = None
    has_own_vocab: bool = False
    """True if the model is given with a `vocab`."""


class VariantReader:
    """Decodes the variants of a study file.

    The base of a variant is its own preset, else the shared preset, else the defaults of `ModelSpec`. The fields under `model`
    replace those of the base, and the variant's own fields replace both. Its `training` replaces fields of the study's. A
    variant `from` a checkpoint, or of a function in `python`, has the shared fields of a model of that kind alone.

    Args:
        model: the content of `model`, or None.
        training: the study's training; None if it has problems, and the variants' own is not read.
        problems: receives the problems of `model`.
    """

    def __init__(self, model: object, training: Training | None, problems: Problems) -> None:
        before = len(problems)
        # None is not the default training: if the study's own is wrong, a variant's fields have nothing to be laid
        # over, and messages about them would speak of values that nobody wrote.
        self._plain_training = None if training is None else training_content(training)
        self._shared = _own_fields(model, "$.model", ALL_MODEL_FIELDS, problems)
        base = _preset(self._shared, {}, "$.model", problems)
        if len(problems) == before and whose(self._shared) is None:
            # Read apart from the variants, so that a problem shared by all is reported once and with its own path.
            read_fields(ModelSpec, lay_over(base, _model_fields(self._shared)), "$.model", problems)
        self._is_usable = len(problems) == before

    def read_all(self, variants: object, problems: Problems) -> dict[str, Variant]:
        """The variants by name, in the order of the file, without those that have problems; {} if `model` has any.

        Args:
            variants: the content of `variants`.
            problems: receives the problems.
        """
        if not isinstance(variants, Mapping):
            names = variants if isinstance(variants, list) and variants else ["base", "mine"]
            advice = f" Write {{{', '.join(f'{name}: {{}}' for name in names if isinstance(name, str))}}}."
            problems.add("$.variants", f"expected a mapping from names to models, got {shown(variants)}.{advice}")
        decoded = {}
        for name, entry in variants.items() if self._is_usable and isinstance(variants, Mapping) else ():
            if not isinstance(name, str):
                problems.add("$.variants", f"expected names that are texts, got {shown(name)}. Put it in quotes.")
            elif (variant := self.read(name, entry, problems)) is not None:
                decoded[name] = variant
        return decoded

    def read(self, name: str, entry: object, problems: Problems) -> Variant | None:
        """A variant; None if it has problems.

        Args:
            name: its name, for messages.
            entry: the content of its entry.
            problems: receives the problems.
        """
        before, path = len(problems), f"$.variants.{name}"
        own = _own_fields(unfolded(entry, path, problems), path, VARIANT_FIELDS, problems)
        training = title = None
        if self._plain_training is not None and own.get("training") is not None:
            training = read_training(own["training"], f"{path}.training", problems, over=self._plain_training)
        if own.get("title") is not None:
            title = read(str, own["title"], f"{path}.title", problems)
        model = _read_model(own, self._shared, path, problems)
        if len(problems) > before:
            return None
        # A vocabulary counts as given wherever it was written, also in the shared model: it is then kept, and not
        # replaced by the tokenizer's number of ids.
        given = {**own, **(self._shared if whose(self._shared) is None else {})}
        has_own_vocab = isinstance(model, ModelSpec) and "vocab" in given
        return Variant(model=model, training=training, title=title, has_own_vocab=has_own_vocab)


def whose(own: Mapping[str, Any]) -> str | None:
    """`from` or `python` of fields that say that a model is one of others; `kind` for a spec that is written out."""
    return next((name for name in ("kind", *FOREIGN_FIELDS) if own.get(name) is not None), None)


def _read_model(own: Mapping[str, Any], shared: Mapping[str, Any], path: str, problems: Problems) -> Any:
    """The model of a variant; `UNREADABLE` if it has problems."""
    origin = whose(own)
    if origin is None and "preset" not in own:
        origin = whose(shared)
    if origin is not None:
        return _read_foreign(origin, own, shared, path, problems)
    if whose(shared) is not None:
        shared = {}  # of a model of others, which the variant is none of
    base = _preset(own, shared, path, problems)
    unfit = next((name for name in own if name not in (*MODEL_FIELDS, *NOT_OF_MODEL)), None)
    if base is UNREADABLE or unfit is not None:
        if unfit is not None:
            problems.add(
                path, f"expected {unfit!r} beside {_companion(unfit)}, got it for a model of addnorm. Remove it."
            )
        return UNREADABLE
    return read(ModelSpec, lay_over(lay_over(base, _model_fields(shared)), _model_fields(own)), path, problems)


def _read_foreign(origin: str, own: Mapping[str, Any], shared: Mapping[str, Any], path: str, problems: Problems) -> Any:
    given = {name: entry for name, entry in own.items() if name not in NOT_OF_MODEL}
    if origin == "kind":
        return read(ForeignSpec, given, path, problems)
    known = FOREIGN_FIELDS[origin]
    before = len(problems)
    for name in given:
        if name not in known:
            problems.add(
                path,
                f"expected no {name!r} beside {origin!r}, got it. The model has sizes and settings of its own. Known: "
                f"{', '.join(known)}.",
            )
    whole: Any = lay_over(shared if whose(shared) == origin else {}, given)
    if origin == "from":
        whole = {"kind": "checkpoint", "checkpoint": whole["from"], "patch": whole.get("patch")}
        if not isinstance(whole["checkpoint"], str):
            problems.add(f"{path}.from", f"expected a text, got {shown(whole['checkpoint'])}.")
        whole["patch"] = read_patch(whole["patch"], f"{path}.patch", problems)
    else:
        whole = {"kind": "python", **{name: entry for name, entry in whole.items() if entry is not None}}
    return read(ForeignSpec, whole, path, problems) if len(problems) == before else UNREADABLE


def read_patch(patch: object, path: str, problems: Problems) -> dict[str, Any]:
    """A patch with the settings of each mechanism's neutral start, every field written out.

    Args:
        patch: the content of `patch`; fields of its mechanisms stay as they are given.
        path: its place, for messages.
        problems: receives the problems: an unknown mechanism, or one that cannot start neutral.
    """
    rooms = (*PATCHABLE, "norm")
    if not isinstance(patch, Mapping | None):
        problems.add(path, f"expected a mapping with any of {', '.join(rooms)}, got {shown(patch)}.")
        return {}
    whole: dict[str, Any] = {}
    for name, given in (patch or {}).items():
        if name not in rooms:
            problems.add(path, f"no field {shown(name)}{nearest(name, rooms)}")
        elif given is not None:
            try:
                whole[name] = encode(neutral_start(name, given).spec) if name in PATCHABLE else given
            except InputError as error:
                problems.add(f"{path}.{name}", str(error).removeprefix(f"{name}: "))
    return whole


def unfolded(entry: object, path: str, problems: Problems) -> object:
    """An entry of a variant whose fields under `model` stand with its others.

    Args:
        entry: the entry.
        path: its place, for messages.
        problems: receives a field that is given twice.
    """
    if not isinstance(entry, Mapping) or not isinstance(entry.get("model"), Mapping):
        return entry
    inner = entry["model"]
    twice = next((name for name in inner if name in entry), None)
    if twice is not None:
        problems.add(f"{path}.model", f"expected each field once, got {twice!r} in the variant too. Keep one.")
    return {**{name: value for name, value in entry.items() if name != "model"}, **inner}


def _companion(name: str) -> str:
    return next(repr(origin) for origin, known in FOREIGN_FIELDS.items() if name in known)


def read_training(content: object, path: str, problems: Problems, over: Mapping[str, Any] | None = None) -> Any:
    """Decode a training of a study file; `UNREADABLE` if it has problems.

    Args:
        content: the content of `training`.
        path: its place, for messages.
        problems: receives the problems, also of a training that has both steps and a budget, or two budgets.
        over: the content of the study's training, whose fields a variant's own replace.
    """
    if not isinstance(content, Mapping):
        return read(Training, content, path, problems)
    given = [name for name in LENGTHS if content.get(name) is not None]
    if len(given) > 1:
        problems.add(path, f"expected {ONE_LENGTH}, got {' and '.join(given)}. Keep one.")
        return UNREADABLE
    whole = content if over is None else lay_over(over, content, "training")
    return read(Training, whole, path, problems)


def training_content(training: Training) -> dict[str, Any]:
    """A training as the content of a study file: with `steps` or with a budget."""
    content: dict[str, Any] = encode(training)
    return {name: value for name, value in content.items() if name != "steps" or not training.budget}


def _of_room(value: object) -> str:
    """Advice for a mechanism in the place of a variant."""
    rooms = [room for room in MECHANISM_ROOMS if isinstance(value, str) and value in ROOMS[room].kinds()]
    return f" Write {{{rooms[0]}: {value}}}." if rooms else ""


def _own_fields(value: object, path: str, known: tuple[str, ...], problems: Problems) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        advice = f" Write {{preset: {value}}}." if isinstance(value, str) and value in PRESETS else _of_room(value)
        problems.add(path, f"expected a mapping with the fields of a model, got {shown(value)}.{advice}")
        return {}
    if isinstance(value.get("kind"), str):  # a spec that is written out; its room knows its fields
        return dict(value)
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
        return _defaults_of(None)
    name = own["preset"] if "preset" in own else shared["preset"]
    if not isinstance(name, str) or name not in PRESETS:
        problems.add(f"{path}.preset", f"no preset {shown(name)}{nearest(name, PRESETS)}")
        return UNREADABLE
    return _defaults_of(name)


@cache
def _defaults_of(preset: str | None) -> Mapping[str, Any]:
    """The content of a preset's model. It is shared by all readers: `lay_over` copies what it changes."""
    return as_now(ModelSpec, encode(ModelSpec() if preset is None else PRESETS[preset]()))


def _model_fields(own: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in own.items() if name in MODEL_FIELDS and name != "preset"}
