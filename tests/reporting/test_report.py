"""`addnorm report`: one file that needs nothing else, honest about what is provisional, and reproducible."""

import csv
import json
import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import made_study
from addnorm.cli import main
from addnorm.reporting.figures import all_figures
from addnorm.reporting.formats.spec import NULL, flat
from addnorm.reporting.measures import measures
from addnorm.reporting.reader import Reader
from addnorm.reporting.report import write_report
from addnorm.reporting.sections.report.environment import environment
from addnorm.reporting.sections.report.method import method
from addnorm.reporting.sections.report.reproduce import reproduction, study_content
from addnorm.reporting.sections.report.setup import setup
from addnorm.store import StudyFolder
from addnorm.store.peeks import peeks
from addnorm.study.loading import load_study
from addnorm.supervision.prepared import prepare_study
from addnorm.words import phrases

FIGURES = [figure.name for figure in all_figures() if not figure.is_on_demand]


class Links(HTMLParser):
    """Everything that a page would load, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if value is not None and (name in ("src", "srcset", "action") or (name == "href" and tag == "link")):
                self.loads.append(value)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(path: Path) -> Links:
    found = Links()
    found.feed(path.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def study(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reported") / "runs"
    shutil.copytree(finished, out)
    assert main(["report", str(out)]) == 0
    return out


def test_the_file_needs_nothing_else_and_runs_no_script(study: Path) -> None:
    found = read(study / "report" / "report.html")
    assert found.loads
    assert all(load.startswith("data:image/svg+xml;base64,") for load in found.loads)
    assert "script" not in found.tags
    style = re.search(r"<style>(.*?)</style>", (study / "report" / "report.html").read_text(), re.S)
    assert style is not None
    assert "@import" not in style[1]
    assert "@media print" in style[1]
    assert "url(" not in style[1]


def test_it_says_what_was_used_with_this_studys_numbers(study: Path) -> None:
    text = " ".join(" ".join(read(study / "report" / "report.html").text).split())
    plan = json.loads((study / "study.json").read_text())
    ranking = Reader(study).look().ranking
    assert ranking is not None
    for said in (
        plan["plan_hash"],
        plan["data_hash"],
        f"{ranking.noise_sd:.2g} nats on {ranking.noise_df} degrees of freedom",
        "All 1 comparisons",
        "within ±0.01 nats",
        "Holm's procedure at 5 %",
        "6 optimizer steps of 2 sequences of 16 tokens",
        "for 6 of 6 runs",
        "No seed was added after results had been seen.",
        "They say nothing about other scales.",
        json.loads(next(study.glob("base-s0-*/env.json")).read_text())["torch"],
        "addnorm rank",
    ):
        assert said in text, said
    assert "PROVISIONAL" not in text


def test_it_begins_with_the_answer_and_names_every_setting_once(study: Path) -> None:
    text = (study / "report" / "report.html").read_text(encoding="utf-8")
    places = [text.index(f'id="{part}-title"') for part in ("title", "answer", "contents", "setup", "method", "models")]
    assert places == sorted(places)
    start, end = (text.index(f'id="{part}-title"') for part in ("setup", "ranking"))
    setup = " ".join(text[start:end].split())
    snapshot = Reader(study).look()
    values = flat(
        {part: snapshot.spec(snapshot.variants[0])[part] for part in ("model", "training", "corpus", "tokenizer")}
    )
    said_in_words = {"model.objective": "the next token"}
    for path, value in values.items():
        if path not in snapshot.differing and not path.endswith(".kind"):
            assert path in setup or said_in_words.get(path, value) in setup, path
    for path in (path for path in values if path in snapshot.differing):
        assert path in setup, path
    assert "This study did not search for a better one" in setup


def test_every_figure_is_shown_once_and_numbered_in_its_order(study: Path) -> None:
    text = (study / "report" / "report.html").read_text(encoding="utf-8")
    names = re.findall(r'<figure class="drawn" id="figure-([a-z_]+)">', text)
    assert sorted(names) == sorted({*FIGURES, "depth"})
    assert text.count("data:image/svg+xml") == len(names)
    assert re.findall(r"<strong>Figure (\d+)\.</strong>", text) == [str(at + 1) for at in range(len(names))]
    assert 'class="chart"' not in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)


def test_it_lists_the_documents_that_are_cited(study: Path) -> None:
    text = (study / "report" / "report.html").read_text(encoding="utf-8")
    cited = text[text.index('<ul class="references">') :]
    assert "Su (2023): <cite>苏剑林 (Su Jianlin)" in cited
    assert "kexue.fm/archives/9577</li>" in cited
    assert "address not known</li>" in cited


def test_figures_and_tables_stand_beside_it(study: Path) -> None:
    folder = study / "report"
    for name in FIGURES:
        assert ET.parse(folder / f"{name}.svg").getroot().tag.endswith("svg"), name
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG"), name
    with open(folder / "insight.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    insight = json.loads(next(study.glob("v4m5-s1-*/insight.json")).read_text())
    (entry,) = (
        row
        for row in rows
        if (row["variant"], row["seed"], row["layer"], row["measure"], row["step"])
        == ("v4m5", "1", "1", "gradient", "6")
    )
    assert float(entry["value"]) == insight["end"]["layers"][1]["gradient"]
    for name in ("ranking", "curves", "scalars", "costs", "insight"):
        assert (folder / f"{name}.csv").stat().st_size > 0, name
    for name in ("ranking", "ranking-base", "curves-loss", "scalars-v4m5", "costs", "insight-gradient"):
        assert (folder / f"{name}.tex").read_text().count(r"\bottomrule") == 1, name
    assert r"\begin{tabular}{lrrrrr}" in (folder / "costs.tex").read_text()
    with open(folder / "curves.csv", newline="") as file:
        steps = {int(row["step"]) for row in csv.DictReader(file) if row["metric"] == "loss"}
    assert steps == {3, 6}


def test_the_study_file_gives_the_same_plan(study: Path, tmp_path: Path) -> None:
    plan = prepare_study(load_study(study / "report" / "study.yaml"), tmp_path / "again").plan
    assert plan["plan_hash"] == StudyFolder(study).plan_hash


def test_the_commands_reach_every_extension(study: Path) -> None:
    snapshot = Reader(study).look()
    plan = {**snapshot.plan, "extensions": [{"plan_hash": "later", "seeds": [7], "runs": []}]}
    found = reproduction(replace(snapshot, plan=plan), study / "report" / "report.html")
    assert found.plan_hashes[-1] == "later"
    assert any("seeds=[0,1,2,7]" in command for command, _ in found.commands)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_setting_without_a_value_is_said_in_words(tmp_path: Path, language: str) -> None:
    folder = made_study.finished(tmp_path / "study").path
    whole = json.loads((folder / "study.json").read_text())
    for run in whole["runs"]:
        run["spec"]["model"] |= {"heads": 6, "kv_heads": None}
        run["spec"]["training"]["clip"] = None
    (folder / "study.json").write_text(json.dumps(whole))
    t = phrases(language)
    said = {sentence for _, sentences in setup(Reader(folder).look(), language) for sentence in sentences}
    assert {t("setup.heads", heads=6, kv_heads=6), t("setup.not_clipped")} <= said
    assert not any(NULL in each and " = " not in each for each in said)  # a list of settings has their paths


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("missing", ["tokenizer", "corpus", "training", "margin", "seeds", "references"])
def test_a_plan_that_lacks_something_has_no_study_file(tmp_path: Path, missing: str) -> None:
    folder = made_study.finished(tmp_path / "study").path
    whole = json.loads((folder / "study.json").read_text())
    for run in whole["runs"]:
        run["spec"].pop(missing, None)
    whole.pop(missing, None)
    (folder / "study.json").write_text(json.dumps(whole))
    written = write_report(Reader(folder).look(), tmp_path / "r.html", "en")
    assert phrases("en")("reproduce.unknown") in written.html.read_text()
    assert not (tmp_path / "study.yaml").exists()


def test_a_plan_without_specs_has_no_study_file() -> None:
    assert study_content({"runs": [{"variant": "a", "seed": 0}], "study": "x"}) is None


@pytest.mark.thorough
def test_a_second_report_is_a_second_look_and_draws_the_same(study: Path, tmp_path: Path, monkeypatch: Any) -> None:
    one = {"gradient_norm": measures()["gradient_norm"]}  # all measures are drawn by the same function
    monkeypatch.setattr("addnorm.reporting.sections.insight.measures", lambda: one)
    before = len(peeks(study))
    out = tmp_path / "again" / "r.html"
    assert main(["report", str(study), "--no-inspect", "--out", str(out)]) == 0
    assert len(peeks(study)) == before + 1
    text = " ".join(" ".join(read(out).text).split())
    assert f"on record, this report's own included: {before + 1}." in text
    drawn = sorted(out.parent.glob("*.svg"))
    assert len(drawn) == len(FIGURES) - len(measures()) + 2  # one measure, and the depth matrices
    for path in drawn:
        assert path.read_bytes() == (study / "report" / path.name).read_bytes(), path.name


@pytest.mark.usefixtures("blank_pictures")
def test_chinese(study: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "zh" / "r.html"
    assert main(["report", str(study), "--no-inspect", "--lang", "zh", "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["report"] == str(out)
    assert all(Path(path).exists() for path in said["files"])
    assert said["left_out"] == []
    text = "".join(read(out).text)
    assert "如何重现这些结果" in text
    assert "变体与参照之间的全部 1 个比较共用一个错误率" in text
    assert '<html lang="zh-Hans">' in out.read_text()


@pytest.fixture
def half_done(study: Path, tmp_path: Path, blank_pictures: None) -> Path:
    out = tmp_path / "half"
    shutil.copytree(study, out)
    shutil.rmtree(out / "report")
    runs = StudyFolder(out).runs()
    for run in runs:
        (run.path / "insight.json").unlink()
    for name in ("DONE", "final.safetensors"):
        (runs[-1].path / name).unlink()
    shutil.rmtree(runs[-1].path / "checkpoints")
    (runs[-2].path / "DONE").unlink()
    runs[-2].mark("failed", reason="the loss became nan", step=3)
    return out


def test_a_half_done_study_is_marked_provisional_and_hides_nothing(half_done: Path, capsys: Any) -> None:
    assert main(["report", str(half_done), "--json"]) == 0
    out, err = capsys.readouterr()
    runs = StudyFolder(half_done).runs()
    assert runs[-1].name in json.loads(out)["not_inspected"]
    assert f"{runs[-1].name} was left out: " in err
    text = " ".join(" ".join(read(half_done / "report" / "report.html").text).split())
    assert "PROVISIONAL: 1 of 6 runs have yet to end." in text
    assert f"failed or diverged and have no result: {runs[-2].name}." in text
    assert "for 5 of 6 runs" in text


def test_without_inspection_the_report_says_so(half_done: Path) -> None:
    assert main(["report", str(half_done), "--no-inspect"]) == 0
    text = " ".join(read(half_done / "report" / "report.html").text)
    assert "No run was inspected" in text
    assert not (half_done / "report" / "gradient_norm.svg").exists()
    assert not list(half_done.glob("*/insight.json"))


def test_an_empty_study(tmp_path: Path, capsys: Any) -> None:
    plan = {
        "study": "<script>alert(1)</script>",
        "plan_hash": "p",
        "references": [],
        "margin": 0.01,
        "runs": [{"run": "a-s0", "variant": "<b>a</b>", "seed": 0, "steps": 4}],
    }
    StudyFolder.create(tmp_path / "runs", plan)
    assert main(["report", str(tmp_path / "runs")]) == 0
    found = read(tmp_path / "runs" / "report" / "report.html")
    assert "script" not in found.tags
    assert "b" not in found.tags
    assert "no study file can be made" in " ".join(found.text)
    assert "Left out for lack of numbers: ranking" in capsys.readouterr().out


def test_a_folder_that_is_no_study(tmp_path: Path, capsys: Any) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "holds no study" in capsys.readouterr().err


def test_runs_that_ran_elsewhere_are_told_apart(half_done: Path) -> None:
    path = next(half_done.glob("base-s0-*/env.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "torch": "9.9"}), encoding="utf-8")
    versions = environment(Reader(half_done).look())["torch"]
    assert versions["9.9"] == 1
    assert sum(versions.values()) == 6


def test_every_sentence_of_the_method_can_be_said(study: Path) -> None:
    """In both languages, with all places filled in."""
    for language in ("en", "zh"):
        for heading, sentences in method(Reader(study).look(), language):
            assert heading
            assert not any("{" in sentence for sentence in sentences)
