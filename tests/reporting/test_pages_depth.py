"""Depth matrices on a model's page, in a report and in a terminal."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import made_study
from addnorm.reporting.reader import Reader
from addnorm.reporting.render import Pages
from addnorm.reporting.sections.depth import figure
from addnorm.reporting.sections.depth.matrices import cells, depth_of, depth_rows
from addnorm.reporting.sections.depth.text import text
from addnorm.reporting.view import View
from addnorm.statistics.over_seeds import mean_over_seeds

READS = ["0.attention", "0.feedforward", "close"]
SOURCES = ["embedding", "0.attention", "0.feedforward"]


def room(weights: list[list[float]], relative: list[list[float]] | None = None) -> dict[str, Any]:
    matrices = {"weights": weights, "shares": weights, "relative": relative or weights}
    spread = [[0.0] * 3] * 3
    return {"kind": "dense", "reads": READS, "sources": SOURCES, "spread": spread, **matrices}


def lower(last: float = 1.0) -> list[list[float]]:
    return [[1.0, 0, 0], [1.0, 1.0, 0], [1.0, -0.5 if last != 1 else 1.0, last]]


def inspected(seed: int, end: dict[str, Any]) -> dict[str, Any]:
    start = {"depth": {"residual": room(lower())}, "layers": []}
    run = {"format": 2, "run": f"v4m5-s{seed}", "variant": "v4m5", "seed": seed}
    return run | {"start": start, "end": {"depth": {"residual": end}, "layers": []}}


@pytest.fixture
def study(tmp_path: Path) -> Path:
    made = made_study.finished(tmp_path / "study")
    of_variant = [run for run in made.runs() if run.spec["variant"] == "v4m5"]
    for seed, run in enumerate(of_variant):
        (run.path / "insight.json").write_text(json.dumps(inspected(seed, room(lower(2.0 + seed)))))
    return made.path


def page(folder: Path, language: str, variant: str = "v4m5") -> str:
    view = View(page="model", language=language, link=lambda page, **query: f"#{page}", variant=variant)
    return str(Pages().section("depth", Reader(folder).look(), view))


def test_means_differences_and_spread_are_over_seeds(study: Path) -> None:
    (found,) = depth_of(Reader(study).look(), "v4m5")
    weights = found.matrices["weights"]
    assert found.seeds == 3
    assert weights.end[2].tolist() == [1.0, -0.5, 3.0]
    assert weights.difference is not None
    assert weights.difference[2].tolist() == [0.0, -1.5, 2.0]
    assert weights.sd is not None
    assert weights.sd[2].tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_has_maps_and_the_weights_that_changed_most(study: Path, language: str) -> None:
    shown = page(study, language)
    assert "close ← 0.feedforward: 3" in shown
    assert shown.count('class="minus-mark"') >= 2, "a negative weight, and a negative change"
    first = shown.index("<tbody>")
    assert shown.index("0.feedforward", first) < shown.index("0.attention", first), "largest change first"
    assert "addnorm inspect" in page(study, language, "base"), "the command, where nothing was measured"


def test_files_that_are_not_understood_count_as_absent(study: Path) -> None:
    for path in study.glob("v4m5*/insight.json"):
        path.write_text(json.dumps(inspected(0, {"kind": "dense"})))
    assert depth_of(Reader(study).look(), "v4m5") == []


def test_the_figure_and_its_table(study: Path) -> None:
    rows = depth_rows(Reader(study).look())
    drawn = figure(rows, "en")
    assert np.allclose(drawn.axes[0].images[0].get_array().filled(0), [[1, 0, 0], [1, 1, 0], [1, -0.5, 3]])
    assert len(cells(rows)) == 3 * 6
    with pytest.raises(ValueError, match="at least one model"):
        figure([])


def test_text_says_if_only_scales_were_learned() -> None:
    of_scales = room(lower(2.0), relative=lower())
    shown = text([inspected(0, of_scales)])
    assert "which branch reads which (residual dense)" in shown
    assert "the model could be written without them" in " ".join(shown.split())
    assert "could be written" not in text([inspected(0, room(lower(2.0)))])
    assert "all weights are 1" in " ".join(text([inspected(0, room(lower()))]).split())
    assert max(map(len, shown.splitlines())) <= 100


def test_students_interval() -> None:
    found = mean_over_seeds([1.0, 2.0, 3.0])
    assert (found.mean, found.seeds) == (2.0, 3)
    assert found.high == pytest.approx(2 + 4.302652729911275 / 3**0.5)  # t at 0.975 with two degrees of freedom
    assert mean_over_seeds([1.0]).low is None
