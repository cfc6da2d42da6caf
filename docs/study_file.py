"""Writes the reference of study files from the dataclasses that read them: `python docs/study_file.py`.

Two files: docs/study-file.md for people, src/addnorm/study/study-file.json, a JSON schema, for editors and for
`addnorm list study-file`, which needs no torch.
"""

import ast
import inspect
import json
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import addnorm
from addnorm.catalogue import ROOMS, Room, Siblings, rooms_by_base
from addnorm.fields import in_words
from addnorm.model.neutral import PATCHABLE
from addnorm.model.presets import PRESETS
from addnorm.model.spec import ModelSpec
from addnorm.study.built_in import SCHEMA
from addnorm.study.decoding import SHORT_FORMS
from addnorm.study.definition import Study, Training
from addnorm.study.encoding import encode
from addnorm.study.loading import FILE_FIELDS
from addnorm.study.points import FIELDS as TUNING_FIELDS
from addnorm.study.tuning import Tuning

EXPONENT = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
"""A number such as 1e-3, which YAML 1.1 reads as a text."""
SPECIAL = {
    "variants": (
        {"type": ["object", "array"], "additionalProperties": {"$ref": "#/$defs/variant"}},
        "a mapping from names to variants; in a profile also a list of names, which selects them",
        "The models by name, in the order in which they start.",
    ),
    "model": ({"$ref": "#/$defs/model"}, "a mapping", "Fields that all variants share."),
    "grid": ({"type": ["object", "null"]}, "a mapping from fields to lists of values", "Axes for all variants."),
    "tune": (
        {"anyOf": [{"$ref": "#/$defs/tuning"}, {"type": "null"}]},
        "a mapping with seeds and axes",
        "Axes over which each variant gets its own best value before it is compared.",
    ),
    "profiles": (
        {"type": ["object", "null"], "additionalProperties": {"$ref": "#/$defs/profile"}},
        "a mapping from names to profiles",
        "Fields of the study that replace those above with `--profile NAME`.",
    ),
    "default_profile": ({"type": "string"}, "a text", "The profile unless `--profile` names one."),
}
"""Fields that are read in another way than the dataclasses say: schema, type in words, meaning."""
_OWN_AXES = {"type": "object", "properties": {"over": {"type": ["object", "null"]}}, "additionalProperties": False}
VARIANT = {
    "preset": (
        {"enum": [*PRESETS]},
        "a preset, see `addnorm list preset`",
        "The model whose fields are the variant's unless it sets them.",
    ),
    "model": (
        {"$ref": "#/$defs/model"},
        "a mapping",
        "Fields of the variant's model, which may stand in the variant directly.",
    ),
    "title": ({"type": "string"}, "a text", "Shown beside the variant's name; in any script."),
    "training": ({"$ref": "#/$defs/training"}, "a mapping", "Fields that replace those of the study's training."),
    "grid": ({"type": ["object", "null"]}, "a mapping from fields to lists of values", "Axes for this variant."),
    "tune": (
        {"anyOf": [_OWN_AXES, {"type": "null"}]},
        "a mapping with `over`",
        "Axes of `tune` for this variant, in addition to the study's or in place of the same one.",
    ),
}


def _object(properties: Mapping[str, Any], *, nullable: bool = False) -> dict[str, Any]:
    return {
        "type": ["object", "null"] if nullable else "object",
        "properties": dict(properties),
        "additionalProperties": False,
    }


_JOINTS = {name: {"anyOf": [{"$ref": f"#/$defs/{name}"}, {"type": "null"}]} for name in PATCHABLE}
FOREIGN = {
    "from": (
        {"type": "string"},
        "a text",
        "Folder of a checkpoint of Transformers, relative to the study file, or a name on Hugging Face's hub: the model "
        "that is trained on, in place of all fields of a model but `patch`. Also the folder of a run of addnorm.",
    ),
    "patch": (
        {**_object(_JOINTS | {"norm": {"type": ["string", "null"]}}), "type": ["object", "null"]},
        "a mapping with any of residual, scores, values and norm",
        "Mechanisms that join the layers of the model in `from`. Each begins as the plain one; fields that are not given "
        "are set so.",
    ),
    "python": (
        {"type": "string"},
        "a text",
        "`FILE.py:FUNCTION`, relative to the study file: build(vocab, max_seq, **options) returns a torch.nn.Module of "
        "tokens to logits, in place of all fields of a model but `options` and `objective`.",
    ),
    "options": (
        {"type": ["object", "null"]},
        "a mapping from names to numbers, texts, true, false or null",
        "Further arguments of the function in `python`.",
    ),
}
"""Fields of models that others wrote."""
HEAD = """# Study files

Every field of a study file. `python docs/study_file.py` writes this page and the JSON schema
[study-file.json](../src/addnorm/study/study-file.json) from the dataclasses that read the file; a
test compares them. `addnorm list study-file` prints the same, `addnorm list study-file --json` the
schema; `addnorm new --blank` writes a file to begin with. How to use the fields is told in
[Write a study](guide/study.md).

An editor with a YAML language server checks a study file against the schema if its first line is

    # yaml-language-server: $schema=PATH/study-file.json
"""


def schema() -> dict[str, Any]:
    """The JSON schema of study files."""
    study = _study_fields(FILE_FIELDS)
    profile = {name: entry for name, entry in study.items() if name not in ("profiles", "default_profile")}
    model, foreign = _properties(ModelSpec), {name: _special(entry) for name, entry in FOREIGN.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "addnorm study file",
        "description": "Variants, seeds, data and training of a study.",
        **_object(study),
        "required": ["name"],
        "$defs": {
            "training": {"description": "Training settings.", **_object(_properties(Training))},
            "tuning": {
                "description": "Fields of tune.",
                **_object({name: entry for name, entry in _properties(Tuning).items() if name in TUNING_FIELDS}),
                "required": ["seeds"],
            },
            "model": {
                "description": "Fields of a model.",
                **_object({"preset": _special(VARIANT["preset"]), **foreign, **model}),
            },
            "variant": {
                "description": "Fields of a variant: those of a model, training, and a grid.",
                **_object({name: _special(entry) for name, entry in VARIANT.items()} | foreign | model, nullable=True),
            },
            "profile": {"description": "Fields of a profile.", **_object(profile)},
            **{room.name: _room(room) for room in ROOMS.values() if room.name not in ("switch", "foreign")},
        },
    }


def _study_fields(names: tuple[str, ...]) -> dict[str, Any]:
    known = _properties(Study)
    return {name: _special(SPECIAL[name]) if name in SPECIAL else known[name] for name in names}


def _special(entry: tuple[Mapping[str, Any], str, str]) -> dict[str, Any]:
    return {**entry[0], "$comment": entry[1], "description": entry[2]}


def _properties(cls: Any) -> dict[str, Any]:
    hints, meanings = get_type_hints(cls), _meanings(cls)
    return {
        field.name: _type(hints[field.name])
        | {"$comment": in_words(hints[field.name], _words())}
        | ({"description": meanings[field.name]} if field.name in meanings else {})
        | ({} if hints[field.name] is Training else _default(field))
        for field in fields(cls)
        if field.init
    }


def _default(field: "Field[Any]") -> dict[str, Any]:
    if field.default is not MISSING:
        return {"default": encode(field.default)}
    if field.default_factory is not MISSING:
        return {"default": encode(field.default_factory())}
    return {}


def _meanings(cls: Any) -> dict[str, str]:
    """The docstrings under the fields of a class and of its bases."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if is_dataclass(each) and each.__module__.startswith("addnorm"):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
            assert isinstance(tree, ast.ClassDef)
            texts = map(_text, tree.body[1:])
            for node, text in zip(tree.body, texts, strict=False):
                if text is not None and isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    found[node.target.id] = " ".join(text.split())
    return found


def _text(node: ast.stmt) -> str | None:
    """The text of a statement that is a text alone."""
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def _words() -> dict[Any, str]:
    rooms = {base: f"{'an' if room.name[0] in 'aeiou' else 'a'} {room.name}" for base, room in rooms_by_base().items()}
    return {**rooms, Training: "a mapping", object: "a list of values"}


def _type(hint: Any) -> dict[str, Any]:
    origin = get_origin(hint)
    if hint in rooms_by_base():
        return {"$ref": f"#/$defs/{rooms_by_base()[hint].name}"}
    if hint is Training:
        return {"$ref": "#/$defs/training"}
    if hint is object:
        return {}
    if is_dataclass(hint):
        whole = _object(_properties(hint))
        short = _type(get_type_hints(hint)[fields(hint)[0].name]) if hint in SHORT_FORMS else None
        return whole if short is None else {"anyOf": [short, whole]}
    if origin is Literal:
        return {"enum": [*get_args(hint)]}
    if origin is tuple:
        return {"type": "array", "items": {"anyOf": [_type(part) for part in get_args(hint) if part is not Ellipsis]}}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _type(get_args(hint)[1])}
    if origin is not None and (origin is Union or get_args(hint)):
        return {"anyOf": [_type(part) for part in get_args(hint)]}
    if hint is float:
        return {"type": ["number", "string"], "pattern": EXPONENT}
    return {"type": {int: "integer", bool: "boolean", str: "string", type(None): "null"}[hint]}


def _room(room: Room) -> dict[str, Any]:
    kinds = Siblings.kinds(room)  # the built-in ones
    known = [_object({"kind": {"const": kind}, **_properties(room.spec_class(kind))}) for kind in kinds]
    plugin = {"type": "object", "required": ["kind"], "properties": {"kind": {"not": {"enum": [*kinds]}}}}
    return {
        "description": f"A {room.name}: its kind, or a mapping with `kind` and its fields. A plugin adds kinds.",
        "anyOf": [{"enum": [*kinds]}, {"type": "string"}, *known, plugin],
    }


def page() -> str:
    """The text of docs/study-file.md."""
    from addnorm.cli.list import file_sections

    parts = [HEAD]
    for title, about, rows in file_sections(schema()):
        parts.append(
            f"\n## {title}\n\n{textwrap.fill(about, 100)}\n\n| field | value | default | meaning |\n|---|---|---|---|\n"
        )
        parts += [
            "| " + " | ".join(cell.replace("|", "\\|") for cell in (f"`{row[0]}`", *row[1:])) + " |\n" for row in rows
        ]
    return "".join(parts)


def schema_text() -> str:
    """The text of the schema's file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    (Path(addnorm.__file__).parent / "study" / SCHEMA).write_text(schema_text(), encoding="utf-8")
    Path(__file__).with_name("study-file.md").write_text(page(), encoding="utf-8")
