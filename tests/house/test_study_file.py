"""The reference of study files: the written files are current, and the schema accepts what addnorm reads."""

import json
import re
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from addnorm.catalogue import ROOMS, Siblings
from addnorm.cli import main
from addnorm.strict_yaml import read_yaml
from addnorm.study.built_in import blank_study, study_file, study_names, study_schema
from addnorm.study.loading import FILE_FIELDS, load_study

ROOT = Path(__file__).parents[2]
WRITER = runpy.run_path(str(ROOT / "docs" / "study_file.py"))
TYPES = {
    "object": Mapping, "array": list, "string": str, "boolean": bool, "null": type(None), "number": (int, float),
    "integer": int,
}  # fmt: skip


def accepts(rule: Mapping[str, Any], value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value fits a JSON schema, as far as the schema of study files goes."""
    if "$ref" in rule:
        return accepts(schema["$defs"][rule["$ref"].removeprefix("#/$defs/")], value, schema)
    types = rule.get("type", [*TYPES])
    types = [types] if isinstance(types, str) else types
    if not any(isinstance(value, TYPES[name]) and (name == "boolean") == isinstance(value, bool) for name in types):
        return False
    if "anyOf" in rule and not any(accepts(part, value, schema) for part in rule["anyOf"]):
        return False
    if "not" in rule and accepts(rule["not"], value, schema):
        return False
    if ("enum" in rule and value not in rule["enum"]) or ("const" in rule and value != rule["const"]):
        return False
    if isinstance(value, str):
        return re.search(rule.get("pattern", ""), value) is not None
    if isinstance(value, list):
        return all(accepts(rule.get("items", {}), entry, schema) for entry in value)
    if not isinstance(value, Mapping):
        return True
    others = rule.get("additionalProperties", {})
    return all(name in value for name in rule.get("required", ())) and all(
        accepts(rule["properties"][name], entry, schema)
        if name in rule.get("properties", {})
        else others is not False and accepts(others, entry, schema)
        for name, entry in value.items()
    )


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return study_schema()


def test_the_schema_and_the_page_are_current(schema: dict[str, Any]) -> None:
    advice = "run `python docs/study_file.py`"
    assert schema == json.loads(WRITER["schema_text"]()), advice
    assert (ROOT / "docs" / "study-file.md").read_text(encoding="utf-8") == WRITER["page"](), advice


def test_every_field_and_every_kind_stands_on_the_page(schema: dict[str, Any]) -> None:
    assert tuple(schema["properties"]) == FILE_FIELDS
    page = (ROOT / "docs" / "study-file.md").read_text(encoding="utf-8")
    for room in ROOMS.values():
        for kind in Siblings.kinds(room) if room.name not in ("switch", "foreign") else ():
            assert f"`{kind}`" in page


def content(text: str) -> Any:
    return read_yaml(text, "text")


@pytest.mark.parametrize("name", study_names())
def test_built_in_studies_fit_the_schema(name: str, schema: dict[str, Any]) -> None:
    assert accepts(schema, content(study_file(name).read_text(encoding="utf-8")), schema)


GOOD = [
    "{name: s, variants: {a: , b: {dropout: 0.1, bias: {q: true}, residual: {alpha: 2}}}}",
    "{name: s, variants: {a: {residual: {kind: my_own, field: 3}, scores: mine, preset: v2m3}}}",
    "{name: s, variants: {a: {training: {tokens: 5, optimizer: {learning_rate: 1e-3}}}}, grid: {depth: [1]}}",
]
BAD = [
    "{variants: {a: {}}}",
    "{name: s, variant: {a: {}}}",
    "{name: s, variants: {a: {widht: 3}}}",
    "{name: s, variants: {a: {width: wide}}}",
    "{name: s, variants: {a: {tied: 1}}}",
    "{name: s, variants: {a: {residual: {kind: rezero, alpha_int: 3}}}}",
    "{name: s, variants: {a: {preset: v2m33}}}",
    "{name: s, training: {step: 5}}",
    "{name: s, training: {precision: float16}}",
    "{name: s, margin: small}",
    "{name: s, profiles: {quick: {seed: [1]}}}",
]


@pytest.mark.parametrize("text", GOOD)
def test_the_schema_accepts_what_is_read(text: str, schema: dict[str, Any]) -> None:
    assert accepts(schema, content(text), schema)


@pytest.mark.parametrize("text", BAD)
def test_the_schema_refuses_mistakes(text: str, schema: dict[str, Any]) -> None:
    assert not accepts(schema, content(text), schema)


def test_a_blank_study_is_read_and_named_after_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "--blank", "--to", "first.yaml"]) == 0
    study = load_study("first.yaml")
    assert (study.name, list(study.variants), study.references) == ("first", ["base", "mine"], ("base",))
    assert accepts(schema, content(blank_study("first")), schema)
    for file, name in (("my study.yaml", "study"), ("1e3.yaml", "1e3")):
        assert main(["new", "--blank", "--to", file]) == 0
        assert load_study(file).name == name
    with_grid = Path("first.yaml").read_text(encoding="utf-8").replace("# grid:", "grid:")
    Path("grid.yaml").write_text(with_grid, encoding="utf-8")
    assert len(load_study("grid.yaml").variants) == 4
    capsys.readouterr()
    for arguments, got in ((["new"], "neither"), (["new", "qk-bias", "--blank"], "both")):
        assert main(arguments) == 2
        expected = f"new: expected either the name of a built-in study or --blank, got {got}."
        assert capsys.readouterr().err.startswith(f"addnorm: {expected}")


def test_list_prints_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "study-file"]) == 0
    out = capsys.readouterr().out
    assert "    tokens_per_parameter: a finite number or null, null by default" in out
    assert "        Largest difference, in nats per token" in out
    assert main(["list", "study-file", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == study_schema()
