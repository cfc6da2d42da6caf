"""The report of a table of runs: the sections of a study's report, and why the others are missing."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError, UnknownName
from addnorm.reporting.sections import sections
from addnorm.words import phrases

LEVELS = {"base": (2.50, 2.53, 2.52, 2.49), "deep": (2.40, 2.44, 2.42, 2.39), "wide": (2.501, 2.529, 2.523, 2.488)}
ROWS = [
    {"variant": name, "seed": s, "loss": x, "acc": 90 - 10 * x} for name, of in LEVELS.items() for s, x in enumerate(of)
]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    lines = ["variant,seed,loss,acc", *(",".join(map(str, row.values())) for row in ROWS)]
    (tmp_path / "results.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "results.csv"


def titles(html: str) -> list[str]:
    found = re.findall(r"<h2[^>]*>(.*?)</h2>", html, re.DOTALL)
    return [re.sub(r"<[^>]+>", "", each).strip() for each in found]


def words(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_it_has_the_sections_of_a_study_that_a_table_allows(table: Path, language: str) -> None:
    written = addnorm.report(table, lang=language)  # type: ignore[arg-type]
    assert written.html == table.with_name("results-report") / "report.html"
    html, t = written.html.read_text(encoding="utf-8"), phrases(language)
    shown = " ".join(titles(html))
    for name in ("ladder", "verdicts", "values", "method", "absent", "reproduce"):
        assert t(f"{name}.title") in shown, name
    for name in ("setup", "cost", "scalars", "environment", "plan"):
        assert t(f"{name}.title") not in shown, name
    for reason in ("setup", "cost", "weights", "record"):
        assert t(f"absent.{reason}") in html
    names = {path.name for path in written.files}
    assert {"ranking.svg", "ranking.csv", "ranking.tex", "differences.svg"} <= names
    assert written.left_out == ("curves",)


def test_each_section_of_a_report_is_of_tables_or_says_why_not() -> None:
    t = phrases("en")
    for name, section in sections().items():
        if section.in_report in (None,) or "table" in section.sources or section.sources == {"checkpoints"}:
            continue
        if name in ("checkpoints", "checkpoint"):  # of measured checkpoints, which no table can stand for
            continue
        assert section.absence, name
        assert t(f"absent.{section.absence}")
        assert t(f"absent.{section.absence}_part")


def test_the_commands_that_it_prints_write_it_again(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = addnorm.report(
        table,
        metric=["acc,direction=higher,unit=%,margin=0.1", "loss"],
        references=["wide"],
        exclude=["base"],
        posterior=True,
    )
    html = written.html.read_text(encoding="utf-8")
    commands = [line.replace("&#39;", "'") for line in re.findall(r"<code>(addnorm (?:rank|report) .*?)</code>", html)]
    assert len(commands) == 2
    capsys.readouterr()
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0
    assert written.html.read_text(encoding="utf-8") == html
    assert "acc in %, higher is better" in capsys.readouterr().out


def test_every_option_reaches_the_report(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--columns", "loss=acc", "--direction", "higher", "--unit", "%", "--margin", "0.3", "--posterior"]
    assert main(["report", str(table), "--lang", "zh", "--json", *options]) == 0
    html = Path(json.loads(capsys.readouterr().out)["report"]).read_text(encoding="utf-8")
    assert "概率" in html
    assert "正值更好" in words(html)
    assert "±0.3" in words(html)
    assert "nats" not in words(html)


def test_rows_in_memory_have_a_report(tmp_path: Path) -> None:
    written = addnorm.report(ROWS, out=tmp_path / "mine.html")
    assert "deep is better than base" in words(written.html.read_text(encoding="utf-8"))
    assert "The table was in memory" in written.html.read_text(encoding="utf-8")


def test_steps_become_curves(tmp_path: Path) -> None:
    rows = [{**row, "step": step, "loss": row["loss"] + 1 / (1 + step)} for row in ROWS for step in (0, 10, 20)]
    written = addnorm.report(rows, out=tmp_path / "mine.html")
    assert written.left_out == ()
    assert (tmp_path / "curves.csv").read_text(encoding="utf-8").count("\n") == 1 + 3 * 3


@pytest.mark.parametrize(
    ("choices", "message"),
    [({"metrics": ["loss"]}, "no argument 'metrics'. Did you mean 'metric'"), ({"margin": -1.0}, "margin")],
)
def test_a_wrong_choice_is_refused(table: Path, choices: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, UnknownName), match=re.escape(message)):
        addnorm.report(table, **choices)


def test_choices_about_a_study_are_refused(tmp_path: Path) -> None:
    import made_study

    study = made_study.finished(tmp_path / "study")
    with pytest.raises(InputError, match="expected a table of runs where margin is given"):
        addnorm.report(study.path, margin=0.1)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_runs_that_do_not_count_are_named_with_the_reason(tmp_path: Path, language: str) -> None:
    rows = [{**row, "state": "finished"} for row in ROWS]
    rows[1]["state"] = "crashed"
    written = addnorm.report(rows, out=tmp_path / "mine.html", lang=language)  # type: ignore[arg-type]
    html = written.html.read_text(encoding="utf-8")
    assert f"base/1{phrases(language)('values.because')}its state is 'crashed'".replace("'", "&#39;") in re.sub(
        "<span[^>]*>", "", html
    )
    addresses = set(re.findall(r'href="#([^"]+)"', html))
    assert addresses <= set(re.findall(r'id="([^"]+)"', html)), "no link leads nowhere"
