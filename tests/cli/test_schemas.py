"""The published schemas against answers: no field is missing in its schema, and none is only in the schema."""

import importlib
import json
import math
import random
import runpy
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from test_port_command import MODELS
from test_predict_command import frozen, train
from test_skill import HEADER, ROWS, TABLES, lines
from trained_answers import trained_answers

import addnorm
import made_study
from addnorm.cli import commands, main
from addnorm.cli.list import schemas
from addnorm.statistics import Ranking, Result, rank
from addnorm.statistics.conclusion import conclusion
from addnorm.statistics.effects.next_step import next_step
from addnorm.statistics.pairs.comparison import Again
from addnorm.statistics.seeds_in_stages import SeedsInStages
from addnorm.statistics.stuck_runs import StuckRuns
from addnorm.statistics.tuning import TuningOutcome, tuning_outcome
from addnorm.store import StudyFolder
from addnorm.store.status import RunStatus

ROOT = Path(__file__).parents[2]
WRITER = runpy.run_path(str(ROOT / "docs" / "answers.py"))
NEVER_HERE = {
    ("run_status", "uncompiled"),  # a compiler that fails
    ("", "pdf"),  # a browser
    ("", "loading"),  # a model of others
    (".runs", "missing"),  # a checkpoint of a class whose parts are not found
    (".rows.values", "reason"),  # a run that failed
    (".runs.directions", "parameters"),  # learned numbers that are redundant
    (".runs.directions", "coefficients"),
    ("unexplained", "parameters"),  # a freedom that no rule knows
    ("unexplained", "size"),
    ("finding", "effect"),  # a parameter that the numerical method found effective
}
"""Fields that no answer here fills, with what they need."""


def closed(schema: Any) -> Any:
    """A schema that also refuses fields which it does not name."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    more = {"additionalProperties": False} if "properties" in schema and "type" in schema else {}
    return {name: closed(part) for name, part in schema.items()} | more


def resolved(part: Mapping[str, Any], value: Any, schema: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Name and schema of the object that a value is."""
    if part.get("$ref") == "#":
        return "", schema
    if "$ref" in part:
        name = part["$ref"].removeprefix("#/$defs/")
        return name, schema["$defs"][name]
    for choice in part.get("anyOf", ()):
        if Draft202012Validator({**closed(choice), "$defs": closed(schema.get("$defs", {}))}).is_valid(value):
            return resolved(choice, value, schema)
    return "", part


def filled(part: Mapping[str, Any], value: Any, schema: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    """Object and name of every field that has a value."""
    if value is None:
        return
    name, part = resolved(part, value, schema)
    where = "" if part is schema else name or where
    if isinstance(value, Mapping) and "properties" in part:
        for field, inner in value.items():
            if inner is not None:
                yield where, field
            yield from filled(part["properties"][field], inner, schema, f"{where}.{field}")
    elif isinstance(value, Mapping) and isinstance(part.get("additionalProperties"), Mapping):
        for inner in value.values():
            yield from filled(part["additionalProperties"], inner, schema, where)
    elif isinstance(value, list) and "items" in part:
        for inner in value:
            yield from filled(part["items"], inner, schema, where)


def declared(part: Any, where: str) -> Iterator[tuple[str, str]]:
    """Object and name of every field of a schema."""
    if not isinstance(part, Mapping):
        return
    for field, inner in part.get("properties", {}).items():
        yield where, field
        yield from declared(inner, f"{where}.{field}")
    for name in ("items", "additionalProperties"):
        yield from declared(part.get(name), where)
    for choice in part.get("anyOf", ()):
        yield from declared(choice, where)
    for name, inner in part.get("$defs", {}).items():
        yield from declared(inner, name)


def curve(worth: float, compute: float) -> float:
    return 1.6 + 88.3 * (worth * compute) ** -0.094 + random.gauss(0, 0.003)


def with_rare_fields(ranking: Ranking, outcome: TuningOutcome) -> Ranking:
    """The ranking with what only certain studies have."""
    again = Again(state="found again", seeds=(7, 8), difference=-0.1, p=0.01, by_seed={7: -0.1, 8: -0.1})
    first, *rest = ranking.variants
    rare: dict[str, Any] = {"again": again, "tuning": {5: -0.1}, "quiet": True, "text_error": 0.01}
    versus = {name: replace(each, **rare) for name, each in first.versus.items()}
    stuck = (StuckRuns(variant=first.variant, seeds=(1,), runs=3, gap=0.5, unstuck={"base": -0.1}),)
    variants = (replace(first, versus=versus), *rest)
    return replace(ranking, variants=variants, tuning=outcome, stuck=stuck, seeds_differ=("base",))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory, blank_pictures_in_module: None) -> dict[str, list[Any]]:
    """Answers of every command by the name of their schema."""
    folder = tmp_path_factory.mktemp("answers")
    random.seed(1)

    def table(name: str, *rows: object) -> str:
        (folder / name).write_text(lines(*rows), encoding="utf-8")
        return str(folder / name)

    runs = table("runs.csv", HEADER, *ROWS, "wide,0,2.49", "wide,1,2.48", "late,0,2.5")
    larger = table(
        "larger.csv", HEADER, *((v, s, x - (0.1 if v == "base" else 0.3) + random.gauss(0, 0.002)) for v, s, x in ROWS)
    )
    sizes = table(
        "sizes.csv",
        "variant,seed,compute,loss",
        *(
            (v, s, c, curve(w, c))
            for v, w in (("base", 1), ("idea", 2))
            for c in (3.8e17, 2.8e18, 1.2e19)
            for s in range(3)
        ),
    )
    far = table(
        "far.csv",
        "variant,seed,compute,loss",
        *((v, s, c, curve(w, c)) for v, w in (("base", 1), ("idea", 4)) for c in (3.8e17, 2.8e18) for s in range(3)),
    )
    curves = table(
        "curves.csv",
        "variant,seed,step,loss",
        *(
            (v, s, step, 2 + f * math.exp(-step / 300) + random.gauss(0, 0.003))
            for v, f in (("base", 1), ("idea", 0.8))
            for s in range(3)
            for step in (100, 200, 400)
        ),
    )
    right = {"base": "110100101101" * 10, "deep": "111110111101" * 10}
    scores = table(
        "scores.csv", "variant,item,score", *((v, i, x) for v, of in right.items() for i, x in enumerate(of))
    )
    of_seeds = table(
        "of-seeds.csv",
        "variant,seed,item,score",
        *(
            (v, s, i, int(random.random() < level))
            for v, level in (("base", 0.5), ("deep", 0.7))
            for s in range(3)
            for i in range(60)
        ),
    )
    proposals = table(
        "proposals.csv",
        HEADER,
        *(("base", s, random.gauss(2.9, 0.01)) for s in range(12)),
        "idea,0,2.95", "better,0,2.80", "better,1,2.81", "better,2,2.80", "better,3,2.81",
        *(("better", s, random.gauss(2.8, 0.01)) for s in range(10, 30)),
        "open,0,2.79",
    )  # fmt: skip
    metrics = table(
        "metrics.csv", "variant,seed,loss,acc", *(f"{v},{s},{2 + s / 9},{50 - s}" for v in "ab" for s in range(3))
    )
    six = [[(f"v{v}", s, 2 + 0.1 * v + random.gauss(0, 0.1)) for v in range(6) for s in range(3)] for _ in range(2)]
    many = [table(f"many{size}.csv", HEADER, *lines) for size, lines in enumerate(six)]
    for name in ("finished", "half_done", "failed"):
        getattr(made_study, name)(folder / name)
    of_ladder = [
        str(train(frozen(folder / f"w{steps}", steps, replicate=("base", "gains")))) for steps in (100, 400, 1600)
    ]
    largest = frozen(folder / "w6400", 6400)
    addnorm.predict_largest(of_ladder, largest.path)
    train(largest)
    study = StudyFolder(folder / "finished")
    tracker = [str(folder / f"{place}.csv") for place, _ in enumerate(TABLES)]
    asked: list[tuple[str, list[str]]] = [
        ("rank", ["rank", "kuang-2025"]),
        ("rank", ["rank", runs, "--posterior"]),
        (
            "rank",
            ["rank", metrics, "--metric", "loss", "--metric", "acc,direction=higher,unit=%,margin=1", "--together"],
        ),
        *(("rank", ["rank", str(folder / name)]) for name in ("finished", "half_done", "failed")),
        ("noise", ["noise", runs, "--difference", "0.01"]),
        ("noise", ["noise", str(folder / "finished")]),
        ("judge", ["judge", str(folder / "stream.jsonl"), "--propose", proposals, "--baseline", "base"]),
        ("trend", ["trend", runs, larger, "--parameters", "1e6,2e6"]),
        ("trend", ["trend", *many, "--parameters", "1e6,2e6"]),
        ("rule", ["rank", runs, "--rule", "parameter-golf"]),
        ("rule", ["rank", runs, "--rule", "modded-nanogpt", "--noise", "0.01"]),
        ("speedup", ["rank", sizes, "--as", "speedup"]),
        ("speedup", ["rank", far, "--as", "speedup", "--limit", "1.6", "--exponent", "0.094"]),
        ("speedup", ["rank", curves, "--as", "steps"]),
        ("speedup", ["rank", of_ladder[0], "--as", "steps"]),
        ("speedup", ["rank", of_ladder[0], "--size", of_ladder[1], "--as", "speedup"]),
        ("prediction", ["trend", *of_ladder, "--predict", str(largest.path)]),
        ("downstream", ["rank", scores, "--as", "downstream", "--columns", "loss=score,seed=", "--margin", "0.3"]),
        ("downstream", ["rank", of_seeds, "--as", "downstream", "--columns", "loss=score"]),
        ("scale_check", ["scale-check", "demo", "--widths", "16,32,64", "--set", "model.depth=1", "--seeds", "1"]),
        ("status", ["status", str(folder / "half_done")]),
        ("status", ["status", str(folder / "failed")]),
        ("list", ["list"]),
        ("report", ["report", str(folder / "finished"), "--out", str(folder / "report")]),
        ("new", ["new", "residual-scores", "--to", str(folder / "mine.yaml")]),
        ("reindex", ["reindex", str(folder / "finished")]),
        ("doctor", ["doctor", "--dir", str(folder)]),
        *(("list", ["list", room]) for room in ("residual", "study", "preset", "source", "skill")),
    ]
    for path, each in zip(tracker, TABLES.values(), strict=True):
        if each.action is not None:
            words = each.commands[-1].removesuffix(" --json").split()[1:]
            Path(path).write_text(each.text, encoding="utf-8", newline="")
            asked.append(("rank", [path if word == "results.csv" else word for word in words]))
    found: dict[str, list[Any]] = {name: [] for name, _ in asked}
    with pytest.MonkeyPatch.context() as patch:
        for name, words in asked:
            printed: list[str] = []

            def write(*text: str, printed: list[str] = printed, file: object = None, **_: object) -> None:
                printed.extend(text if file is None else ())  # messages go to standard error

            patch.setattr("builtins.print", write)
            assert main([*words, "--json"]) == 0 or name == "doctor", (words, printed)
            found[name].append(json.loads("".join(printed)))
    points = {"base": {"base, a": {"rate": 1.0}, "base, b": {"rate": 2.0}}}
    tuned = [
        Result(variant=f"base, {point}", seed=seed, loss=level + random.gauss(0, 0.01), run=f"{point}{seed}")
        for point, level in (("a", 2.5), ("b", 2.6))
        for seed in (0, 1)
    ]
    lost = Result(variant="base, b", seed=2, state="failed", reason="lost")
    for runs_of_tuning, seeds in (([*tuned, lost], (0, 1, 2)), (tuned, (0, 1))):
        outcome = tuning_outcome(runs_of_tuning, points, seeds)
        found["status"].append({**study.status(), "tuning": outcome.to_json()})
    inside = [replace(run, loss=run.finished_loss - 0.2) if run.variant == "base, b" else run for run in tuned]
    inside += [Result(variant="base, c", seed=seed, loss=2.52 + random.gauss(0, 0.01)) for seed in (0, 1)]
    points["base"]["base, c"] = {"rate": 3.0}
    found["status"].append({**study.status(), "tuning": tuning_outcome(inside, points, (0, 1)).to_json()})
    results = [Result(variant=v, seed=s, loss=x) for v, s, x in ROWS]
    close = [Result(variant="close", seed=s, loss=x + 0.02 * (-1) ** s) for _, s, x in ROWS[:3]]
    exact = [Result(variant="exact", seed=s, loss=x + 0.05, accuracy=0.4) for _, s, x in ROWS[:3]]
    accurate = [replace(each, accuracy=0.5) if each.variant == "base" else each for each in results]
    for ranking in (
        rank([*results, *close], references=["base"], design=SeedsInStages.planned((0, 1, 2), 4)),
        rank([*results, *close], references=["base"], margin=1e-5, design=SeedsInStages.planned((0, 1, 2), 20)),
        rank([*accurate, *exact], references=["base"], assumed_sd=0.01),
        with_rare_fields(rank(results, references=["base"], second=(7, 8, 9)), outcome),
        rank(results, references=["base"], pairs=[(results[-1].variant, "base")]),
    ):
        said = {"answer": [*map(str, conclusion(ranking))], "next": next_step(ranking).to_json()}
        found["rank"].append(json.loads(json.dumps({**ranking.to_json(), **said})))
    of_port = folder / "port.py"
    of_port.write_text(MODELS, encoding="utf-8")
    for other in ("same", "wrong"):
        with pytest.MonkeyPatch.context() as patch:
            printed = []
            patch.setattr("builtins.print", lambda *text, printed=printed, **_: printed.extend(text))
            assert main(["port", f"{of_port}:original", f"{of_port}:{other}", "--json"]) == int(other == "wrong")
        found.setdefault("port", []).append(json.loads("".join(printed)))
    status = {
        **study.status(),
        "runs": [RunStatus(run="r", variant="v", seed=0, state="failed", step=1, steps=2).to_json()],
    }
    found["status"].append(status)
    return found | trained_answers(folder)


@pytest.fixture(scope="module")
def filled_fields(answers: dict[str, list[Any]]) -> dict[str, set[tuple[str, str]]]:
    """Object and name of every field that an answer fills, by the name of its schema."""
    return {
        name: {field for each in of for field in filled(schemas()[name], each, schemas()[name], "")}
        for name, of in answers.items()
    }


@pytest.mark.parametrize("name", WRITER["ANSWERS"])
def test_answers_fit_their_schema_and_fill_every_field_of_it(
    name: str, answers: dict[str, list[Any]], filled_fields: dict[str, set[tuple[str, str]]]
) -> None:
    schema = schemas()[name]
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(closed(schema))
    for answer in answers.get(name, ()):
        validator.validate(answer)
    if name != "watch":  # has a test of its own
        # Objects that several answers share need be whole in one of them.
        seen = filled_fields[name].union(*({each for each in of if each[0]} for of in filled_fields.values()))
        assert {*declared(schema, "")} - seen <= NEVER_HERE


@pytest.mark.parametrize(
    "wrong",
    [
        {"margin": "0.005"},
        {"next": None},
        {"another": 1},
        {"better": "up"},
        {"variants": [{}]},
        {"lines": [["base", 1]]},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_wrong_answer_does_not_fit(wrong: dict[str, Any], answers: dict[str, list[Any]]) -> None:
    with pytest.raises(ValidationError):
        Draft202012Validator(closed(schemas()["rank"])).validate({**answers["rank"][0], **wrong})


def test_the_written_schemas_are_those_of_the_code() -> None:
    for path, text in WRITER["files"]().items():
        assert path.read_text(encoding="utf-8") == text, "run `python docs/answers.py`"
    assert schemas().keys() == WRITER["ANSWERS"].keys()


def test_every_command_that_prints_json_has_a_schema() -> None:
    titles = {schema["title"].split()[1] for schema in schemas().values()}
    modules = {name: importlib.import_module(f"addnorm.cli.{name.replace('-', '_')}") for name in commands()}
    assert titles == {name for name, of in modules.items() if "json" in {field.name for field in fields(of.Options)}}


def test_rankings_at_a_length_fit_the_schema_of_rankings(answers: dict[str, list[Any]]) -> None:
    validator = Draft202012Validator(closed(schemas()["rank"]))
    added = {name: answers["rank"][0][name] for name in ("answer", "next")}
    rankings = answers["extrapolate"][0]["rankings"]
    assert rankings.keys() == {"16", "32"}
    for each in rankings.values():
        validator.validate(each | added)


def test_the_address_of_a_page_fits_its_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Ready:
        url = "http://127.0.0.1:1/"

        def serve(self) -> None:
            pass

    monkeypatch.setattr("addnorm.web.serve.page", lambda *_, **__: Ready())
    assert main(["watch", str(tmp_path), "--json"]) == 0
    Draft202012Validator(closed(schemas()["watch"])).validate(json.loads(capsys.readouterr().out))


def test_schemas_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "schema", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == schemas()
    assert main(["list", "schema"]) == 0
    assert "addnorm rank TABLE --rule RULE --json" in capsys.readouterr().out
