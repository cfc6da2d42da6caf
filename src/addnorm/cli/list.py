"""List studies, the fields of a study file, presets, mechanisms, corpora, optimizers, and the documents that they cite.

Without an argument, all rooms with their kinds are listed; with a room, each kind with its summary and formula, or each study
with its profiles. `skill` prints instructions for programs that use these commands, `schema` lists the JSON schemas of answers.

For example:
    addnorm list residual
    addnorm list skill
    addnorm list scores --plugin mine.py --json
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from addnorm.catalogue import ROOMS, Doc, Room, preset_docs, room
from addnorm.cli._text import PluginOption, on_screen, print_json
from addnorm.reporting.formats.table import Column, ResultTable, at
from addnorm.words import spoken, translated

LEARNED_NUMBERS = Path(__file__).parents[1] / "insight" / "learned_numbers.json"
"""Written by docs/learned_numbers.py."""
SKILL = Path(__file__).parents[1] / "SKILL.md"
"""Instructions for programs, in the form of Agent Skills."""
_GUIDES = (Path(__file__).parents[1] / "guide", Path(__file__).parents[3] / "docs" / "guide")
"""The guides in a wheel, and in a checkout."""
SCHEMAS = Path(__file__).parents[1] / "schemas"
"""JSON schemas of the answers, written by docs/answers.py."""


@dataclass(frozen=True)
class Options(PluginOption):
    room: Annotated[str | None, tyro.conf.Positional] = None
    """`study`, `study-file`, `preset`, `source`, `skill`, `schema`, `guide`, `guide/NAME`, or a room such as `residual`; all
    rooms if not given."""


def command(options: Options) -> int:
    if options.plugin:
        from addnorm.study.plugins import load_plugins

        load_plugins(options.plugin, Path.cwd())
    if options.room is None:
        rooms = {name: list(kinds) for name, kinds in _everything().items()}
        if options.json:
            print_json(rooms)
        else:
            columns = (Column("room", side="l", value=at(0)), Column("kinds", None, ", ".join, "l", at(1)))
            print(on_screen(ResultTable(columns, list(rooms.items()))))
            print(f"\n{spoken()('printed.rooms')}")
        return 0
    if options.room == "study-file":
        _print_study_file(json=options.json)
        return 0
    if options.room == "skill":
        skill = SKILL.read_text(encoding="utf-8")
        print_json({"skill": skill}) if options.json else print(skill, end="")
        return 0
    if options.room == "schema":
        _print_schemas(json=options.json)
        return 0
    if options.room == "guide" or options.room.startswith("guide/"):
        _print_guides(options.room.partition("/")[2], json=options.json)
        return 0
    entries = _entries(options.room)
    if options.json:
        print_json({options.room: entries})
    else:
        for entry in entries:
            summary = translated(spoken().translation(f"about.{entry['summary']}", entry["summary"]))
            summary = spoken().translation(f"mechanism.{options.room}.{entry['kind']}.summary", summary)
            print(f"{entry['kind']}\n    {summary}")
            if entry.get("formula"):
                print(f"\n{entry['formula']}\n")
            if learned := entry.get("learned"):
                print(f"    {translated(_learned(learned))}\n")
            if entry.get("source"):
                print(f"    {translated('Source')}: {entry['source']}")
            if "address" in entry:
                print(f"    {entry['address'] or translated('address not known')}")
            if entry.get("profiles"):
                print(f"    {translated('Profiles')}: {', '.join(entry['profiles'])}")
    return 0


def schemas() -> dict[str, Any]:
    """The JSON schema of every answer by its name."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(SCHEMAS.glob("*.json"))}


def _print_schemas(*, json: bool) -> None:
    if json:
        print_json(schemas())
        return
    columns = (Column("schema", side="l", value=at(0)), Column("answer of", None, at("title"), "l", at(1)))
    print(on_screen(ResultTable(columns, list(schemas().items()))))


def guides() -> dict[str, Path]:
    """The guides by name, `study` in English and `study.zh-CN` in Chinese."""
    folder = next(folder for folder in _GUIDES if folder.is_dir())
    return {path.stem: path for path in sorted(folder.glob("*.md"))}


def _print_guides(name: str, *, json: bool) -> None:
    from addnorm.errors import UnknownName

    known = guides()
    if not name:
        rows = [
            (each, path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")) for each, path in known.items()
        ]
        if json:
            print_json({each: {"title": title, "path": str(known[each])} for each, title in rows})
        else:
            print(
                on_screen(
                    ResultTable((Column("guide", side="l", value=at(0)), Column("title", side="l", value=at(1))), rows)
                )
            )
            print(f"\n{spoken()('printed.one_guide')}")
        return
    if name not in known:
        raise UnknownName("guide", name, known)
    text = known[name].read_text(encoding="utf-8")
    print_json({"guide": name, "text": text}) if json else print(text, end="")


def _print_study_file(*, json: bool) -> None:
    from addnorm.study.built_in import study_schema

    schema = study_schema()
    if json:
        print_json(schema)
        return
    for title, about, rows in file_sections(schema):
        print(f"{title}: {about}\n")
        for name, value, default, meaning in rows:
            print(f"    {name}: {value}{f', {default} by default' if default else ''}")
            if meaning:
                print(f"        {meaning}")
        print()


def _everything() -> dict[str, tuple[str, ...]]:
    from addnorm.study.built_in import study_names

    own = {"study": study_names(), "preset": tuple(preset_docs()), "source": tuple(each["kind"] for each in _sources())}
    return own | {name: each.kinds() for name, each in ROOMS.items()}


def _entries(name: str) -> list[dict[str, Any]]:
    if name == "study":
        return _studies()
    if name == "preset":
        return [{"kind": kind, "summary": summary} for kind, summary in preset_docs().items()]
    if name == "source":
        return _sources()
    if name not in ROOMS:
        from addnorm.errors import UnknownName

        raise UnknownName("room", name, ("study", "study-file", "preset", "source", "skill", "schema", "guide", *ROOMS))
    chosen: Room = room(name)
    docs: list[Doc] = [chosen.doc(kind) for kind in chosen.kinds()]
    counts = json.loads(LEARNED_NUMBERS.read_text(encoding="utf-8"))
    return [
        {"kind": doc.kind, "summary": doc.summary, "formula": doc.formula, "why": doc.why, "source": doc.source}
        | ({"learned": learned} if (learned := _counts_of(counts.get(f"{name}.{doc.kind}", {}))) else {})
        for doc in docs
    ]


def _counts_of(row: Mapping[str, Any]) -> dict[str, int] | None:
    """The learned numbers of a built-in mechanism in a model of two layers; None if it has none, or they were not counted."""
    if not row.get("numbers") or row.get("matter") is None:
        return None
    return {"numbers": row["numbers"], "unread": row["unread"], "matter": row["matter"]}


def _learned(counts: Mapping[str, int]) -> str:
    gauge = counts["numbers"] - counts["unread"] - counts["matter"]
    parts = [f"Learned numbers in two layers of width 8: {counts['numbers']}.", f"Can matter: {counts['matter']}."]
    parts += [f"Can be absorbed by other parameters: {gauge}."] if gauge else []
    parts += [f"Read by nothing: {counts['unread']}."] if counts["unread"] else []
    return " ".join(parts)


def _studies() -> list[dict[str, Any]]:
    from addnorm.study.built_in import study_about, study_names, study_profiles

    return [
        {"kind": name, "summary": study_about(name), "profiles": list(study_profiles(name))} for name in study_names()
    ]


def _sources() -> list[dict[str, Any]]:
    from addnorm.references import REFERENCES

    return [
        {
            "kind": each.key,
            "summary": ". ".join(filter(None, (each.author or "Author not known", each.title, each.title_en))),
            "address": each.address or None,
        }
        for each in REFERENCES
    ]


Row = tuple[str, str, str, str]
"""Field, value in words, default, meaning."""


def file_sections(schema: Mapping[str, Any]) -> list[tuple[str, str, list[Row]]]:
    """Title, description and fields of every part of a study file: the file, training, tuning, variant, and every kind."""
    parts = [
        ("Study", schema),
        *((name.capitalize(), schema["$defs"][name]) for name in ("training", "tuning", "variant")),
    ]
    parts_of_file = [(title, part["description"], _field_rows(part["properties"])) for title, part in parts]
    for title, of in schema["$defs"].items():
        kinds = [
            each["properties"] for each in of.get("anyOf", ()) if "const" in each.get("properties", {}).get("kind", {})
        ]
        rows = [
            (f"{kind['kind']['const']}.{field}", value, default, meaning)
            for kind in kinds
            for field, value, default, meaning in _field_rows({name: kind[name] for name in kind if name != "kind"})
        ]
        if kinds:
            names = ", ".join(f"`{kind['kind']['const']}`" for kind in kinds)
            parts_of_file.append((title.capitalize(), f"{of['description']} Kinds: {names}.", rows))
    return parts_of_file


def _field_rows(properties: Mapping[str, Any]) -> list[Row]:
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
