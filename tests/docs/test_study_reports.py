"""The studies' reports: every table comes from the data beside it, every command names what there is."""

import importlib.util
import json
import re
import shlex
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from addnorm.cli import commands
from addnorm.statistics import ranking_of_published, read_published
from addnorm.study.built_in import study_names, study_profiles
from addnorm.study.loading import load_study
from sampled import sampled

FOLDER = Path(__file__).parents[2] / "docs" / "studies"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.stem != "symmetries")  # a page without verdicts
REPORTS = [path for path in PAGES if not path.name.startswith("README")]
"""Pages of one study each; the others are the table of claims, in two languages."""
DATA = sorted(path for path in (FOLDER / "data").glob("*.json") if path.stem != "symmetries")
RESULTS = [path for path in DATA if "runs" in json.loads(path.read_text(encoding="utf-8"))]


@cache
def variants_of(study: str) -> set[str]:
    """The variants of all profiles of a built-in study."""
    return {variant for profile in study_profiles(study) for variant in load_study(study, profile=profile).variants}


def name_of(path: Path) -> str:
    return path.stem


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("study_tables", FOLDER / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_reports_and_data() -> None:
    assert {"bias-ablation", "norm-placement", "realformer"} <= {path.stem for path in REPORTS}
    assert RESULTS


@pytest.mark.parametrize("report", sampled(4, PAGES), ids=name_of)
def test_the_tables_are_those_of_the_data(report: Path, tables: ModuleType) -> None:
    """`python docs/studies/tables.py write` writes them anew."""
    assert tables.written(report.read_text(encoding="utf-8")) == report.read_text(encoding="utf-8")
    assert tables.BLOCK.search(report.read_text(encoding="utf-8"))


def test_a_changed_number_is_noticed(tables: ModuleType) -> None:
    report = REPORTS[0].read_text(encoding="utf-8")
    block = tables.BLOCK.search(report)[0]
    last = re.findall(r"\d\.\d", block)[-1]
    forged = report.replace(block, block.replace(last, "9.9"))
    assert forged != report
    assert tables.written(forged) == report


def test_lengths_are_shown_as_the_command_prints_them(
    tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far.json").write_text(json.dumps({"rows": []}), encoding="utf-8")
    monkeypatch.setattr(tables, "DATA", tmp_path)
    monkeypatch.setattr(tables, "lengths", lambda found: f"{len(found['rows'])} rows\n")
    report = "<!-- lengths far -->\nold\n<!-- end -->"
    assert tables.written(report) == "<!-- lengths far -->\n```text\n0 rows\n```\n<!-- end -->"


def test_slices_join_by_run_and_tuned_slices_by_variant(tables: ModuleType) -> None:
    before = [{"run": "a-1", "variant": "a", "loss": 1.0}, {"run": "b-1", "variant": "b", "loss": 2.0}]
    again = [{"run": "a-1", "variant": "a", "loss": 1.1}]
    other = [{"run": "a-2", "variant": "a", "loss": 3.0}]
    assert tables.joined(before, again, tuned=False) == [*again, before[1]]
    assert tables.joined(before, other, tuned=False) == [*other, *before]
    assert tables.joined(before, other, tuned=True) == [*other, before[1]]


def test_tuning_of_further_variants_joins_the_file(
    tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ranking:
        def __init__(self, seeds: list[int], **chosen: str) -> None:
            self.seeds = seeds
            self.variants = [{"variant": variant, "chosen": point} for variant, point in chosen.items()]

        def to_json(self) -> dict[str, object]:
            return {"tuning": {"seeds": self.seeds, "noise_sd": 0.1, "variants": self.variants}}

    path = tmp_path / "tuning.json"
    for found in (Ranking([100], a="1", b="1"), Ranking([100], b="2", c="1")):
        monkeypatch.setattr(tables, "rank", lambda folder, found=found: found)
        tables.collect_tuning(tmp_path, path)
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert {row["variant"]: row["chosen"] for row in kept["variants"]} == {"a": "1", "b": "2", "c": "1"}
    monkeypatch.setattr(tables, "rank", lambda folder: Ranking([7], a="3"))
    with pytest.raises(SystemExit, match=r"expected tuning on the seeds \[100\], got \[7\]"):
        tables.collect_tuning(tmp_path, path)


def test_batches_of_seeds_are_shown_apart_and_together(
    tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs(*losses: tuple[str, int, float | None]) -> list[dict[str, object]]:
        return [{"variant": variant, "seed": seed, "loss": loss} for variant, seed, loss in losses]

    first = runs(("a", 0, 1.0), ("b", 0, 1.02), ("a", 1, 1.0), ("b", 1, 1.04), ("a", 2, None), ("b", 2, 1.0))
    points = [
        {"point": f"a at {rate}", "values": {"rate": rate}, "runs": [{"seed": 9, "loss": loss}]}
        for rate, loss in ((0.1, 2.0), (0.2, 2.09))
    ]
    fixed = [{"point": "b", "values": {"rate": 0.2}, "runs": [{"seed": 9, "loss": 2.0}]}]
    tuning = [
        {"variant": "a", "chosen": "a at 0.1", "points": points},
        {"variant": "b", "chosen": "b", "points": fixed},
    ]
    (tmp_path / "one.json").write_text(json.dumps({"label": "first", "runs": first}), encoding="utf-8")
    (tmp_path / "two.json").write_text(json.dumps({"label": "second", "runs": runs(("a", 3, 1.0))}), encoding="utf-8")
    (tmp_path / "rates.json").write_text(json.dumps({"variants": tuning}), encoding="utf-8")
    monkeypatch.setattr(tables, "DATA", tmp_path)
    head, _, row = tables.block("batches", "one two rates@0.2 a:b").splitlines()
    assert head == "| difference | first | second | tuning seeds | all seeds | sd | t test alone |"
    # -20 and -40 on the first batch, +90 at the rate 0.2: sd 70, t = 10 / (70 / sqrt 3).
    cells = row.strip("| ").split(" | ")
    assert cells == [
        "a - b",
        "-30, lower on 2 of 2",
        "not run",
        "+90, lower on 0 of 1",
        "+10, lower on 2 of 3",
        "70",
        "p = 0.83",
    ]
    assert "+0, lower on 0 of 1" in tables.block("batches", "one rates@chosen a:b")


def test_signs_are_counted_over_all_pairs(tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, order in (("small", "abcd"), ("large", "abdc")):
        runs = [{"variant": variant, "seed": 0, "loss": float(place)} for place, variant in enumerate(order)]
        (tmp_path / f"{name}.json").write_text(json.dumps({"label": name, "runs": runs}), encoding="utf-8")
    monkeypatch.setattr(tables, "DATA", tmp_path)
    assert tables.block("signs", "small large").splitlines()[-1] == "| small | large | 5 of 6 | 3 |"


def test_variants_of_two_files_are_compared_on_the_seeds_of_both(
    tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, losses in (("low", {0: 1.0, 1: 1.5, 2: 1.2}), ("high", {1: 1.6, 2: 1.5, 3: 9.0})):
        runs = [{"variant": name[0], "seed": seed, "loss": loss} for seed, loss in losses.items()]
        (tmp_path / f"{name}.json").write_text(json.dumps({"label": "", "runs": runs}), encoding="utf-8")
    monkeypatch.setattr(tables, "DATA", tmp_path)
    row = tables.block("across", "low l high h").splitlines()[-1]
    assert row == "| l (seeds 0 to 2) - h (seeds 1 to 3) | -200, lower on 2 of 2 | 141 | p = 0.3 |"


def test_every_data_file_stands_in_a_report(tables: ModuleType) -> None:
    used = {
        name
        for report in REPORTS
        for found in tables.BLOCK.finditer(report.read_text(encoding="utf-8"))
        for joined in found[2].split()[
            : 1 if found[1] in ("learned", "pairs") else None : 2 if found[1] == "across" else 1
        ]
        if ":" not in joined and not joined[0].isdecimal() and found[1] not in ("answer", "claims", "counts")
        for name in joined.partition("@")[0].split("+")
    }
    # The report on symmetries has no rankings: `docs/studies/symmetries.py` writes it, and tests/symmetry hold it.
    assert used == {path.stem for path in DATA} - {"symmetries"}


@pytest.mark.parametrize("path", RESULTS, ids=name_of)
def test_the_data_are_runs_of_the_built_in_study(path: Path) -> None:
    notes = read_published(path)
    assert {result.variant for result in notes.results} <= variants_of(notes.notes["study"])
    assert len({result.corpus_hash for result in notes.results}) == 1
    ranking = ranking_of_published(path)
    assert not ranking.provisional


@pytest.mark.parametrize("report", REPORTS, ids=name_of)
def test_the_commands_name_what_there_is(report: Path) -> None:
    text = report.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [shlex.split(line.replace("$(", "").split(";")[0]) for line in re.findall(r"addnorm [a-z]+ [^`\n]*", text)]
    assert any(report.stem == study or report.stem.startswith(f"{study}-") for study in study_names())
    for _, command, first, *rest in [line for line in lines if len(line) > 2]:
        assert command in commands()
        if command in ("run", "plan", "new"):
            profile = rest[rest.index("--profile") + 1] if "--profile" in rest else None
            assert load_study(first, profile=profile)


@pytest.mark.parametrize("report", [*REPORTS, FOLDER / "symmetries.md"], ids=name_of)
def test_a_report_begins_with_its_answer_and_ends_with_its_commands(report: Path, tables: ModuleType) -> None:
    text = report.read_text(encoding="utf-8")
    assert text.splitlines()[2] == f"<!-- answer {report.stem} -->"
    blocks = list(tables.BLOCK.finditer(text))
    between = text[blocks[0].end() : blocks[1].start() if len(blocks) > 1 else text.index("<!-- tables -->")]
    shown_next = between.strip().partition("\n")[0]
    assert not shown_next or shown_next.startswith("!["), (
        f"a figure or a table stands after the answer, got {shown_next!r}"
    )
    assert "**中文摘要。**" in text
    before, commands = re.split(r"^## Commands\n", tables.BLOCK.sub("", text), flags=re.M)
    assert len(re.sub(r"<!-- tables -->.*<!-- end of tables -->", "", before, flags=re.S).splitlines()) < 170
    assert not re.search(r"^    (addnorm|python|for) ", before, re.M)
    assert not re.search(r"^#", commands, re.M)
    assert commands.count("    ")


def test_an_answer_with_another_verdict_than_the_data_is_refused(
    tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, numbers = tables.answer, tables.answer.__globals__
    assert "0.056 nats [0.023, 0.089]" in answer("realformer")
    assert "19 of 24" in " ".join(answer("depth-tasks").split())
    assert "24 次中 19 次" in answer("depth-tasks")
    forged = {"en": "worse by {worse realformer-long realformer post}", "zh": ""}
    (tmp_path / "answers.yaml").write_text(json.dumps({"realformer": forged}), encoding="utf-8")
    monkeypatch.setitem(numbers, "HERE", tmp_path)
    with pytest.raises(SystemExit, match="expected the verdict better, got worse"):
        answer("realformer")
    forged["en"] = "better by {once better realformer-long realformer post}"  # there is a second batch by now
    (tmp_path / "answers.yaml").write_text(json.dumps({"realformer": forged}), encoding="utf-8")
    with pytest.raises(SystemExit, match="there is a second batch"):
        answer("realformer")


def test_the_answer_on_symmetries_has_the_numbers_of_its_data(tables: ModuleType) -> None:
    classes = json.loads((FOLDER / "data" / "symmetries.json").read_text(encoding="utf-8"))
    share = {name: found["redundant"] / found["parameters"] for name, found in classes.items()}
    low, high = min(share, key=share.__getitem__), max(share, key=share.__getitem__)
    assert (low.startswith("Olmo2"), high.startswith("Siglip")) == (True, True)
    whole = sum(found["redundant"] == found["explained"] for found in classes.values())
    llama, gpt2 = (classes[name] for name in ("LlamaForCausalLM", "GPT2LMHeadModel"))
    numbers = [f"{share[low]:.0%}"[:-1], f"{share[high]:.0%}"[:-1]]
    for found in (llama, gpt2):
        numbers += [found["redundant"], found["parameters"]]
    numbers += [whole, len(classes)]
    english = tables.answer("symmetries").partition("\n\n")[0]
    stated = [int(number) for number in re.findall(r"(?<![\w-])\d+", english) if number != "2"]
    assert stated == [int(number) for number in numbers]


def test_figures_are_small_and_shown() -> None:
    text = "".join(report.read_text(encoding="utf-8") for report in REPORTS)
    for image in (FOLDER / "images").glob("*"):
        assert image.stat().st_size < 200_000
        assert f"images/{image.name}" in text
    for target in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (FOLDER / target).exists()
