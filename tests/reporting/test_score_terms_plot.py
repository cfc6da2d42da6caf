"""The figure of the four terms: a line of panels per layer, heads averaged, bands drawn."""

import pytest

from addnorm.reporting.drawing.figure_style import style
from addnorm.reporting.sections.terms import MOST_LAYERS, figure, text

TERMS = ("qRk", "aRk", "qRb", "aRb", "sum")


def curve(level: float) -> dict[str, list[float]]:
    return {"mean": [level] * 3, "low": [level - 1] * 3, "high": [level + 1] * 3}


def rows(layers: int, *labels: str) -> list[dict]:
    return [
        {
            "label": label,
            "trained": 4,
            "layer": layer,
            "head": head,
            "distances": [0.0, 1.0, 2.0],
            "terms": {name: curve(float(place + head)) for place, name in enumerate(TERMS)},
            "isotropy": {"query": 0.1, "key": 0.2, "query_biased": 0.3, "key_biased": 0.4, "chance": 0.05},
        }
        for label in labels
        for layer in range(layers)
        for head in (0, 1)
    ]


def test_panels_and_curves() -> None:
    drawn = figure(rows(2, "with", "without"))
    assert len(drawn.axes) == 2 * 3
    first, last = drawn.axes[0], drawn.axes[2]
    curves = [line for line in first.lines if not line.get_label().startswith("_")]
    assert [list(line.get_ydata()) for line in curves] == [[place + 0.5] * 3 for place in range(4)], "heads averaged"
    corners = first.collections[0].get_paths()[0].vertices[:, 1]
    low, high = corners.min(), corners.max()
    assert (low, high) == (-1, 2), "the band holds every head's"
    assert [line.get_label() for line in last.lines if not line.get_label().startswith("_")] == [
        "with", "with, first term", "without", "without, first term",
    ]  # fmt: skip
    assert len({str(style(place)["linestyle"]) for place in range(4)}) == 4, "read without colour"


def test_deep_models_show_some_layers_and_both_ends() -> None:
    drawn = figure(rows(30, "deep"))
    titles = [axes.get_title(loc="left") for axes in drawn.axes[::2]]
    assert len(titles) == MOST_LAYERS
    assert (titles[0], titles[-1]) == ("deep, layer 0", "deep, layer 29")


def test_both_languages_and_no_rows() -> None:
    assert "第 0 层" in figure(rows(1, "a"), "zh").axes[0].get_title(loc="left")
    with pytest.raises(ValueError, match="at least one row"):
        figure([])


def test_the_table_s_columns() -> None:
    model = {
        "run": "a-s0-1", "label": "a", "trained": 4, "samples": 2, "length": 16, "q_bias": True, "k_bias": False,
        "largest_error": 1e-16, "rounding": 1e-13,
    }  # fmt: skip
    varied = rows(1, "a")
    for row in varied:
        row["terms"]["aRk"]["mean"] = [0.0, 3.0, 0.0]
    shown = text({"models": [model], "rows": varied})
    assert "a-s0-1: a q bias; 2 texts of 16 tokens, trained at 4." in shown
    sizes = shown.split("\n\n")[1].splitlines()[2].split()
    # Standard deviation of 0, 3, 0 is the root of 2.
    assert sizes == ["0", "0.000", "1.414", "0.000", "0.000", "0.10", "0.20", "0.05"]
