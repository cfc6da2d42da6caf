"""The loss of a synthetic task is that of its answers, and no text calls it nats per token."""

import json
import shutil
from pathlib import Path

import pytest

import addnorm
import made_files
import made_study
from addnorm.cli import main
from addnorm.reporting.sections.lengths.table import text as lengths_text
from addnorm.statistics.measure import NATS_PER_ANSWER
from addnorm.store import write_json
from addnorm.words.spoken import speaking

EPISODES = {"tokens": 50, "answers": [48], "optimum_loss": 0.0, "chance_loss": 2.07}


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A finished study whose data are a task's."""
    folder = made_study.finished(tmp_path / "made").path
    description = folder / "data" / "dataset.json"
    description.parent.mkdir(exist_ok=True)
    content = json.loads(description.read_text()) if description.exists() else {}
    description.write_text(json.dumps({**content, "episodes": EPISODES}))
    return folder


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    "form", [[], ["--margin", "0.001"], ["--margin", "10"], ["--latex"], ["--csv"], ["--posterior"]]
)
def test_no_form_of_the_ranking_speaks_of_nats_per_token(
    task: Path, capsys: pytest.CaptureFixture[str], language: str, form: list[str]
) -> None:
    assert main(["rank", str(task), *form, "--lang", language]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert not any(words in text for words in ("nats per token", "thousandths", "每个 token", "每 token"))
    if not form:
        assert ("in nats per answer token, lower is better" if language == "en" else "每个答案 token 的 nat") in text


def test_the_unit_is_in_the_json_and_in_other_questions(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rank", str(task), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["metric"], found["unit"], found["better"]) == ("loss", NATS_PER_ANSWER, "lower")
    assert "nats per token" not in json.dumps(found)
    assert addnorm.noise(task).to_json()["unit"] == NATS_PER_ANSWER
    checked = addnorm.rule(task, "parameter-golf")
    assert any(warning.note["code"] == "rule_unit" for warning in checked.warnings)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_other_questions_print_it_so(task: Path, capsys: pytest.CaptureFixture[str], language: str) -> None:
    larger = shutil.copytree(task, task.with_name("larger"))
    assert main(["trend", str(task), str(larger), "--parameters", "1e6,2e6", "--lang", language]) == 0
    content = {**made_files.evaluation(), "metric": "loss", "unit": NATS_PER_ANSWER}
    content["rows"] = [{**row, "buckets": []} for row in content["rows"]]
    with speaking(language):
        text = " ".join(f"{capsys.readouterr().out} {lengths_text(content)}".split())
    unit = "nats per answer token" if language == "en" else "每个答案 token 的 nat"
    assert text.count(unit) == 3
    assert not any(words in text for words in ("nats per token", "thousandths", "千分之一", "每 token", "nat/token"))


def test_a_study_of_text_keeps_its_unit(tmp_path: Path) -> None:
    assert "unit" not in addnorm.rank(made_study.finished(tmp_path / "made").path).to_json()


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_report_and_the_page_read_the_same_unit(task: Path, tmp_path: Path, language: str) -> None:
    out = tmp_path / "report.html"
    write_json(task / "extrapolation.json", made_files.evaluation())
    assert main(["report", str(task), "--out", str(out), "--lang", language, "--no-inspect"]) == 0
    text = " ".join(out.read_text(encoding="utf-8").split())
    unit = "nats per answer token" if language == "en" else "每个答案 token 的 nat"
    assert text.count(unit) >= 3
    assert not any(words in text for words in ("nats per token", "每个 token 的 nat", "每 token 的 nat", "nats/token"))
