"""Titles of variants: decoded, recorded in the plan, shown beside the names."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import made_study
from addnorm.cli import main
from addnorm.reporting.sections.report.reproduce import study_content
from addnorm.study.loading import load_study
from addnorm.supervision.prepared import prepare_study

FILE = """name: tiny
seeds: [0]
corpus: {kind: synthetic, num_documents: 20}
training: {steps: 2, batch: 2, seq: 16, eval_sequences: 4}
model: {preset: base, width: 16, depth: 2, heads: 2, kv_heads: 1, hidden: 16, max_seq: 16}
variants:
  base: {title: 基准模型}
  zero: {title: "Zéro <b>", residual: rezero}
  plain: {hidden: 24}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A study file in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(FILE, encoding="utf-8")
    return "s.yaml"


def test_titles_are_decoded_and_recorded(file: str, tmp_path: Path, capsys: Any) -> None:
    study = load_study(file)
    assert study.titles == {"base": "基准模型", "zero": "Zéro <b>"}
    plan = prepare_study(study, tmp_path / "out").plan
    assert plan["titles"] == study.titles
    assert "titles" not in prepare_study(load_study(file, settings=["variants=[plain]"]), tmp_path / "out").plan
    Path("again.yaml").write_text(yaml.safe_dump(study_content(plan), sort_keys=False), encoding="utf-8")
    assert prepare_study(load_study("again.yaml"), tmp_path / "again").plan["plan_hash"] == plan["plan_hash"]
    assert main(["plan", file]) == 0
    assert "base     基准模型" in capsys.readouterr().out


def test_points_of_a_grid_share_a_title_and_name_their_values(file: str) -> None:
    study = load_study(file, settings=["grid.depth=[1, 2]"])
    assert study.titles["base, depth 2"] == "基准模型, depth 2"
    assert "plain, depth 2" not in study.titles


@pytest.mark.parametrize("title", ["''", '"a\\nb"', "3", "x" * 201])
def test_wrong_titles_are_refused(title: str, file: str, capsys: Any) -> None:
    Path(file).write_text(FILE.replace("基准模型", title), encoding="utf-8")
    assert main(["plan", file]) == 2
    assert "$.variants.base.title: expected" in capsys.readouterr().err


@pytest.mark.usefixtures("blank_pictures")
def test_the_report_shows_titles_beside_names(tmp_path: Path) -> None:
    folder = made_study.StudyFolder.create(tmp_path / "out", made_study.plan() | {"titles": {"base": "基准 <模型>"}})
    for run in folder.runs():
        made_study.finish(run)
    assert main(["report", str(folder.path)]) == 0
    (html,) = (folder.path / "report").glob("*.html")
    assert '>base</a> <span class="soft">基准 &lt;模型&gt;</span>' in html.read_text(encoding="utf-8")
