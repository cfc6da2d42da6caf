"""The figure of an evaluation at lengths: every model's line, told apart without colour."""

import io
import subprocess
import sys

import pytest

from addnorm.reporting.drawing.figure_style import style
from addnorm.reporting.sections.lengths.figure import figure


def rows(labels: int, *, interval: bool = True) -> list[dict]:
    def ends(mean: float) -> list[float] | None:
        return [mean - 0.1, mean + 0.1] if interval else None

    return [
        {
            "label": f"model {number}",
            "length": length,
            "multiple": length // 64,
            "loss": 2.0 + number,
            "loss_interval": ends(2.0 + number),
            "accuracy": 0.5,
            "accuracy_interval": ends(0.5),
            "buckets": [
                {"from": 0, "to": 32, "loss": 2.0, "loss_interval": ends(2.0)},
                {"from": 32, "to": length, "loss": None if number == 1 else 3.0, "loss_interval": None},
            ],
        }
        for number in range(labels)
        for length in (64, 128, 256)
    ]


def test_every_model_has_a_line_of_its_own_look() -> None:
    drawn = figure(rows(12))
    accuracy, loss, place = drawn.axes
    for axes in (accuracy, loss, place):
        lines = [container[0] for container in axes.containers]
        assert len(lines) == 12
        assert [line.get_marker() for line in lines] == [style(place)["marker"] for place in range(12)]
    assert len({(str(style(place)["linestyle"]), style(place)["marker"]) for place in range(12)}) == 12, (
        "without colour"
    )
    line, _, (bars,) = accuracy.containers[3].lines
    assert list(line.get_ydata()) == [50.0] * 3
    assert bars.get_segments()[0][:, 1].tolist() == pytest.approx([40.0, 60.0])
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == [f"model {n}" for n in range(12)]
    assert [text.get_text() for text in loss.get_xticklabels()] == ["64", "128", "256"]
    assert len(place.containers[1][0].get_xdata()) == 1, "a bucket without a loss is left out"


def test_it_can_be_written_without_intervals() -> None:
    file = io.BytesIO()
    figure(rows(2, interval=False)).savefig(file, format="svg")
    assert b"model 1" in file.getvalue() or len(file.getvalue()) > 1000


def test_no_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        figure([])


def test_matplotlib_and_torch_are_not_imported_with_the_module() -> None:
    code = (
        "import sys, addnorm.reporting.sections.lengths; sys.exit(bool({'matplotlib', 'torch'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
