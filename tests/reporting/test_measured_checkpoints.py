"""Checkpoints that were measured into a folder: their pages, beside each other and one by one, and the report of them."""

import csv
import json
from pathlib import Path

import pytest

import made_files
import made_study
from addnorm.errors import InputError
from addnorm.reporting.changes import EVERYTHING, changed_sections, runs_with_news
from addnorm.reporting.layer_panel import layer_panel
from addnorm.reporting.measures import measures
from addnorm.reporting.reader import reader_of
from addnorm.reporting.render import Pages
from addnorm.reporting.report import report
from addnorm.reporting.sections import pages_of
from addnorm.reporting.sections.checkpoints import side_by_side
from addnorm.reporting.sections.insight.rows import layer_rows
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.store import Damaged
from addnorm.store.measured import measured_folder, measured_names
from addnorm.words import phrases, say


def read(folder: Path) -> Snapshot:
    return reader_of(folder).look()


def shown(snapshot: Snapshot, page: str, language: str = "en", variant: str | None = None) -> str:
    chrome = {"asset": str, "in_language": str, "events": "", "number": 0}
    link = "/{}".format
    view = View(page=page, language=language, variant=variant, link=lambda name, **query: link(name))
    return Pages().page(snapshot, view, **chrome)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made_files.checkpoint(tmp_path / "measures", "small", text="a")
    made_files.checkpoint(tmp_path / "measures", "large", layers=4, text="a", missing=say("no_read_out"))
    return tmp_path / "measures"


def test_a_folder_of_checkpoints_opens_with_them_side_by_side(folder: Path) -> None:
    snapshot = read(folder)
    assert pages_of(snapshot) == ("checkpoints", "checkpoint")
    compared = side_by_side(snapshot, phrases("en"))
    assert [(each.name, each.layers) for each in compared.checkpoints] == [("large", 4), ("small", 2)]
    assert {panel.key for panel in compared.panels} == {measure.key for measure in measures().values()}
    panel = next(panel for panel in compared.panels if panel.key == "cosine")
    assert panel.lines == ((0.5, 1.5, 2.5, 3.5), (0.5, 1.5, None, None))
    assert panel.ys[0][:2] == panel.ys[1][:2]
    text = shown(snapshot, "checkpoints")
    assert all(part in text for part in ("/models/small", "/models/large", "a.txt", "Cosine of a layer"))
    assert "<b>large</b>: read-out of earlier layers" in text
    assert "<b>large</b>: 先前各层的读出" in shown(snapshot, "checkpoints", "zh")
    assert "different tokens" not in text


def test_other_texts_are_said(folder: Path) -> None:
    made_files.checkpoint(folder, "third", text="b")
    assert "These checkpoints were measured on different tokens" in shown(read(folder), "checkpoints")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_checkpoint_has_the_sections_of_a_model(folder: Path, language: str) -> None:
    (folder / "measured" / "large" / "terms.json").write_text(json.dumps(made_files.four_terms()))
    text = shown(read(folder), "checkpoint", language, "large")
    assert text.count('class="panel"') == len(measures()) + 2 + 3  # layers of the terms, maps of the depth matrix
    assert phrases(language)("insight.at_start") not in text
    assert phrases(language)("depth.title") in text
    other = shown(read(folder), "checkpoint", language, "small")
    assert f"addnorm inspect /models/small --text FILE --to {folder} --name small --terms" in other


def test_a_study_shows_them_on_a_page_of_their_own(tmp_path: Path) -> None:
    study = made_study.finished(tmp_path / "study")
    assert "checkpoints" not in pages_of(read(study.path))
    for run in study.runs():
        (run.path / "insight.json").write_text(json.dumps(made_files.flow(run)))
    made_files.checkpoint(study.path, "base")  # as only a folder can have to which the study came later
    before = read(study.path)
    assert before.checkpoints == ()
    made_files.checkpoint(study.path, "mine", layers=3)
    now = read(study.path)
    assert "checkpoints" in pages_of(now)
    assert "/checkpoints" in shown(now, "overview")
    assert changed_sections(before, now) == {EVERYTHING}
    assert now.variants == before.variants
    rows = [row for row in layer_rows(now, "rms") if row["variant"] in ("mine", "base")]
    assert [(row["variant"], row["layer"], len(row["start"]), len(row["end"])) for row in rows] == [
        ("base", 0, 3, 3), ("base", 1, 3, 3), ("mine", 0, 0, 1), ("mine", 1, 0, 1), ("mine", 2, 0, 1)
    ]  # fmt: skip
    for measure in ("gradient_norm", "stream_size"):
        key = measures()[measure].key
        assert len(measures()[measure].figure(layer_rows(now, key)).axes) == 2


def test_a_figure_of_checkpoints_alone_has_no_empty_half(folder: Path) -> None:
    drawn = measures()["gradient_norm"].figure(layer_rows(read(folder), "gradient"))
    (axes,) = drawn.axes
    assert [text.get_text() for text in axes.texts] == []
    assert len(axes.containers) == 2


def test_news_of_a_checkpoint_reach_its_page(folder: Path) -> None:
    before = read(folder)
    (folder / "measured" / "small" / "terms.json").write_text(json.dumps(made_files.four_terms()))
    now = read(folder)
    assert changed_sections(before, now) == {"terms"}
    assert runs_with_news(before, now) == {"measured/small"}


@pytest.mark.usefixtures("blank_pictures")
def test_the_report_of_a_folder_of_checkpoints(folder: Path) -> None:
    written = report(folder)
    text = written.html.read_text(encoding="utf-8")
    assert "checkpoints-title" in text
    assert all(f'id="model-{name}"' in text for name in ("small", "large"))
    for absent in ("totals-title", "curves-title", "reproduce-title", "plan-title", "mechanisms-title"):
        assert absent not in text
    assert not (folder / "looks.jsonl").exists()
    names = {path.name for path in written.files}
    assert {"gradient_norm.svg", "update_size.svg", "key_isotropy.svg", "checkpoints.csv"} <= names
    tables = [name for name in names if name.startswith("checkpoints-") and name.endswith(".tex")]
    assert len(tables) > 5
    assert "study.yaml" not in names
    rows = list(csv.DictReader((folder / "report" / "checkpoints.csv").read_text(encoding="utf-8").splitlines()))
    assert {row["checkpoint"] for row in rows} == {"small", "large"}
    assert all("large & " in (folder / "report" / name).read_text(encoding="utf-8") for name in tables)


def test_names_of_checkpoints(tmp_path: Path, folder: Path) -> None:
    assert measured_folder(folder, None, Path("/models/small")) == folder / "measured" / "small"
    with pytest.raises(InputError, match="which is /models/small"):
        measured_folder(folder, None, Path("/others/small"))
    assert measured_folder(folder, "other", Path("/others/small")).name == "other"
    for name in ("../x", ".x", "a/b"):
        with pytest.raises(InputError, match="expected a name without slashes"):
            measured_folder(folder, name, Path("/x"))
    study = made_study.finished(tmp_path / "study")
    with pytest.raises(InputError, match="expected a name that no model of the study"):
        measured_folder(study.path, None, Path("/models/base"))
    with pytest.raises(InputError, match="got that of a run"):
        measured_folder(study.runs()[0].path, None, Path("/models/mine"))
    (study.path / "study.json").write_text("{}")
    with pytest.raises(Damaged, match=r"\$\.runs: expected a list"):
        measured_folder(study.path, None, Path("/models/mine"))
    assert measured_names(tmp_path / "nowhere") == ()


def test_a_checkpoint_that_is_not_measured_names_the_command(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match=f"addnorm inspect {tmp_path} --text FILE --to DIR"):
        reader_of(tmp_path)


@pytest.mark.parametrize("content", ["half", "[]", '{"format": 99}', '{"format": 3, "end": 1}'])
def test_a_file_that_is_not_understood_is_as_if_it_were_not_there(folder: Path, content: str) -> None:
    (folder / "measured" / "small" / "insight.json").write_text(content)
    text = shown(read(folder), "checkpoints")
    assert "No measures per layer." in text
    assert "Cosine of a layer" in text


def test_ticks_of_a_panel_can_be_told_apart() -> None:
    values = {layer: 0.999991 + 1e-6 * layer for layer in range(40)}
    panel = layer_panel(measures()["layer_cosine"], [values], phrases("en"))
    assert panel is not None
    texts = [text for _, text in panel.y_ticks]
    assert len(set(texts)) == len(texts) > 1
    assert len(panel.x_ticks) <= 16
