"""Every figure: drawn from rows, in both languages, readable without colour, and without torch."""

import io
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from fontTools.ttLib import TTFont
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.text import Text

from addnorm.reporting.drawing import figure_style as style
from addnorm.reporting.drawing.figure_style import name_rows
from addnorm.reporting.drawing.image import _DPI, _UNDATED, saved
from addnorm.reporting.figures import all_figures
from addnorm.reporting.measures import measures
from addnorm.words import LANGUAGES
from sampled import sampled

FIGURES = {figure.name: figure for figure in all_figures() if not figure.is_on_demand}

pytestmark = pytest.mark.filterwarnings("error")


def ranking() -> list[dict[str, Any]]:
    def row(variant: str, **values: Any) -> dict[str, Any]:
        return {
            "variant": variant,
            "tier": "open",
            "line_apart": True,
            "provisional": False,
            "reference": False,
        } | values

    return [
        row("a", mean=2.5, interval=(2.4, 2.6), values=[2.45, 2.55], rank_interval=(1, 2), reference=True),
        row("b", mean=2.6, interval=None, values=[2.6], rank_interval=(2, 2)),
        row("c", mean=None, interval=None, values=[], rank_interval=None, tier="failed"),
    ]


def differences() -> list[dict[str, Any]]:
    verdicts = ["better", "worse", "equivalent", "undecided", "none"]
    return [
        {
            "variant": f"v{place}",
            "reference": reference,
            "difference": None if verdict == "none" else 0.01 * place,
            "interval": None if verdict == "none" else (0.01 * place - 0.02, 0.01 * place + 0.02),
            "verdict": verdict,
            "verdict_word": verdict,
            "margin": 0.005,
        }
        for reference in ("a", "b")
        for place, verdict in enumerate(verdicts)
    ]


def curves() -> list[dict[str, Any]]:
    steps = list(range(10, 210, 10))
    return [
        {
            "variant": f"v{place}",
            "place": place,
            "metric": metric,
            "steps": steps,
            "mean": [1 / step + place for step in steps],
            "low": [0.9 / step + place for step in steps],
            "high": [1.1 / step + place for step in steps],
        }
        for metric in ("train_loss", "accuracy")
        for place in range(3)
    ]


def scalars() -> list[dict[str, Any]]:
    return [
        {"variant": variant, "parameter": "scores.a", "layer": layer, "init": 0.5, "decay_only": 0.1, "finals": [0.2, 0.3]}
        for variant, layers in (("v4m4", (0, 1, 1)), ("rezero", (None, None)))
        for layer in layers
    ]  # fmt: skip


def costs() -> list[dict[str, Any]]:
    return [
        {"variant": "a", "parameters": 2_000_000, "tokens_per_s": 1234.0, "wall_s": None},
        {"variant": "b", "parameters": 3_000_000, "tokens_per_s": None, "wall_s": None},
    ]


def layers() -> list[dict[str, Any]]:
    return [
        {
            "variant": f"v{place}",
            "place": place,
            "layer": layer,
            "start": [0.1 * (layer + 1), 0.2],
            "end": [0.3, None] if place else [0.2, 0.1],
        }
        for place in range(3)
        for layer in range(4)
    ]


ROWS = {"ranking": ranking, "differences": differences, "curves": curves, "scalars": scalars, "costs": costs}


def rows(name: str) -> list[dict[str, Any]]:
    return ROWS[name]() if name in ROWS else layers()


def draw(name: str, given: Any, language: str = "en") -> Any:
    return FIGURES[name].draw(given, language)


@pytest.mark.parametrize("language", sampled(2, LANGUAGES))
@pytest.mark.parametrize("name", FIGURES)
def test_figure(name: str, language: str) -> None:
    figure = draw(name, rows(name), style.drawable(language))
    kind = "svg" if language == "en" else "png"  # every figure in both kinds, each language in both
    assert len(saved(figure, kind)) > 1000
    assert figure.axes


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_a_saved_figure_is_what_matplotlib_saves(kind: str) -> None:
    """Although it is placed once less."""
    out = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "addnorm", "svg.fonttype": "path"}):
        draw("ranking", ranking()).savefig(out, format=kind, dpi=_DPI, metadata=_UNDATED[kind])
    assert saved(draw("ranking", ranking()), kind) == out.getvalue()


@pytest.mark.parametrize("name", FIGURES)
def test_no_rows_no_figure(name: str) -> None:
    with pytest.raises(ValueError, match="at least one"):
        draw(name, [])


def test_every_measure_has_a_figure() -> None:
    assert list(measures()) == [name for name in FIGURES if name in measures()]


def lines(axes: Any) -> list[Any]:
    return [line for line in axes.get_lines() if len(line.get_xdata()) > 1]


@pytest.mark.parametrize("name", ["curves", "gradient_norm"])
def test_lines_differ_without_their_colour(name: str) -> None:
    drawn = lines(draw(name, rows(name)).axes[0])
    looks = {(str(line.get_linestyle()), str(line._dash_pattern), line.get_marker()) for line in drawn}
    assert len(looks) == 3


def test_140_styles_differ() -> None:
    assert len({str(style.style(place)) for place in range(140)}) == 140


def test_means_and_whiskers_are_the_seeds() -> None:
    axes = draw("attention_entropy", layers()).axes[1]
    (container, *_) = axes.containers
    line, _, (whiskers,) = container
    assert list(line.get_ydata()) == pytest.approx([0.15] * 4)
    for segment in whiskers.get_segments():
        assert sorted(segment[:, 1]) == pytest.approx([0.1, 0.2])


def test_values_that_are_not_finite_or_not_positive_are_left_out_and_said() -> None:
    given = [{**row, "start": [0.0, 0.0]} if row["variant"] == "v1" else row for row in layers()]
    axes = draw("gradient_norm", given).axes[0]
    assert any(text.get_text() == "= 0: v1" for text in axes.texts)
    assert all(math.isfinite(y) for line in lines(axes) for y in line.get_ydata())


def test_a_reference_that_cannot_be_told_apart_is_dashed() -> None:
    def line(apart: bool) -> Any:
        given = ranking()
        given[0]["line_apart"] = apart
        return draw("ranking", given).axes[0].get_lines()[0]

    assert line(True).get_linestyle() == "-"
    assert line(False).get_linestyle() == "--"


def test_provisional_is_printed_on_the_figure() -> None:
    given = [{**row, "provisional": True} for row in ranking()]
    assert "provisional" in draw("ranking", given).axes[0].get_title(loc="left")
    assert draw("ranking", ranking()).axes[0].get_title(loc="left") == ""


def test_chinese_is_drawn_where_a_font_has_it_and_english_where_none_has(monkeypatch: Any) -> None:
    monkeypatch.setattr(style, "chinese_font", lambda: None)
    assert style.drawable("zh") == "en"
    assert style.drawable("en") == "en"
    monkeypatch.setattr(style, "chinese_font", lambda: "Some Font")
    assert style.drawable("zh") == "zh"


def test_a_font_that_was_installed_since_matplotlib_listed_them_is_found(tmp_path: Path, monkeypatch: Any) -> None:
    font = TTFont(font_manager.findfont("DejaVu Sans"))
    for record in font["name"].names:
        if record.nameID in (1, 4, 16):
            record.string = "SimHei"
    font.save(tmp_path / "simhei.ttf")
    (tmp_path / "broken.ttf").write_text("no font")
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: list(map(str, tmp_path.iterdir())))
    kept = [entry for entry in font_manager.fontManager.ttflist if entry.name not in style.CHINESE_FONTS]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", kept)
    assert style.chinese_font.__wrapped__() == "SimHei"


def test_sections_import_neither_torch_nor_matplotlib_until_they_draw() -> None:
    code = (
        "import sys; from addnorm.reporting.figures import all_figures; "
        f"assert {{figure.name for figure in all_figures()}} >= {set(FIGURES)}; "
        "print(sorted({'torch', 'matplotlib'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "names", [[f"residual={place},scores=weighted,placement=pre" for place in range(6)], ["变体" * 12] * 5, ["a", "b"]]
)
def test_a_legend_stays_on_its_figure(names: list[str]) -> None:
    if style.chinese_font() is None and not names[0].isascii():
        pytest.skip("needs a font with Chinese letters")
    given = [{**row, "variant": names[row["place"] % len(names)], "metric": "loss"} for row in curves()]
    drawn = draw("curves", given)
    saved(drawn, "png")
    box = drawn.legends[0].get_window_extent()
    assert 0 <= box.x0 < box.x1 <= drawn.bbox.width


def off_the_figure(drawn: Any) -> list[str]:
    saved(drawn, "png")
    words = [
        text for text in drawn.findobj(Text) if re.search("[a-z]", text.get_text())
    ]  # not ticks beyond an axis's end
    boxes = [(text.get_text(), text.get_window_extent()) for text in words]
    boxes += [("legend", legend.get_window_extent()) for legend in drawn.legends]
    return [name for name, box in boxes if box.x0 < -1 or box.x1 > drawn.bbox.width + 1]


@pytest.mark.parametrize("name", ["differences", "scalars", "curves"])
def test_nothing_is_cut_off_a_narrow_figure(name: str) -> None:
    """One reference and every kind of verdict, one panel of scalars, one of curves: signs need the most of their width."""
    given = {
        "differences": lambda: [
            {
                "variant": f"a_variant_that_is_{verdict}",
                "reference": "base",
                "margin": 0.005,
                "difference": 0.01 * place,
                "interval": (0.01 * place - 0.004, 0.01 * place + 0.004),
                "verdict": verdict,
                "verdict_word": verdict,
            }
            for place, verdict in enumerate(("better", "worse", "equivalent", "undecided"))
        ],
        "scalars": lambda: scalars()[:3],
        "curves": lambda: [row for row in curves() if row["metric"] == "accuracy"],
    }
    assert off_the_figure(draw(name, given[name]())) == []


def test_parameters_of_one_number_share_a_panel_over_the_variants() -> None:
    def number(variant: str, parameter: str, init: float) -> dict[str, Any]:
        finals = [init + 0.1, init - 0.1]
        return {
            "variant": variant,
            "parameter": parameter,
            "layer": None,
            "init": init,
            "decay_only": init,
            "finals": finals,
        }

    one = [
        number("base", "gain", 1.0),
        number("half_gain_on_the_whole_stream", "gain", 0.5),
        number("base", "other", 2.0),
    ]
    drawn = draw("scalars", [*one, *scalars()])
    shown = {axes.get_title(loc="left"): axes for axes in drawn.axes if axes.get_visible()}
    assert list(shown) == ["gain", "other", "v4m4  scores.a", "rezero  scores.a"]
    assert [label.get_text() for label in shown["gain"].get_xticklabels()] == [
        "base",
        "half_gain_on_\nthe_whole_stream",
    ]
    assert shown["gain"].get_xlabel() == ""
    assert off_the_figure(drawn) == []


def narrow(value: Any) -> Any:
    """Every number as 2.6308 and a hundred-thousandth of itself: where matplotlib writes an offset."""
    if isinstance(value, float):
        return 2.6308 + 1e-5 * value
    if isinstance(value, dict):
        return {name: narrow(each) for name, each in value.items()}
    return type(value)(map(narrow, value)) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("size", ["as_it_is", "narrow"])
@pytest.mark.parametrize("name", FIGURES)
def test_labels_need_no_offset(name: str, size: str) -> None:
    drawn = draw(name, rows(name) if size == "as_it_is" else narrow(rows(name)))
    drawn.canvas.draw()
    assert {axis.get_offset_text().get_text() for axes in drawn.axes for axis in (axes.xaxis, axes.yaxis)} == {""}


@pytest.mark.parametrize(
    ("low", "high", "label"),
    [(2.63081, 2.63085, "2.63082"), (0.0, 2.0, "1.0"), (1e-7, 9e-7, "4e-07"), (1e7, 1.00004e7, "1.00002e+07")],
)
def test_labels_have_the_digits_that_tell_them_apart(low: float, high: float, label: str) -> None:
    figure = style.new_figure(4, 3)
    axes = figure.subplots()
    axes.plot([0, 1], [low, high])
    style.finished(figure).canvas.draw()  # type: ignore[attr-defined]
    labels = [text.get_text().replace("\u2212", "-") for text in axes.get_yticklabels()]
    assert label in labels
    assert len(set(labels)) == len(labels)
    assert list(map(float, labels)) == pytest.approx(list(axes.get_yticks()), rel=1e-9)


def test_long_names_leave_room_for_the_axis() -> None:
    """Names of four settings took the whole width, and matplotlib gave up on the layout with a warning."""
    figure = Figure(figsize=(9.5, 3), layout="constrained")
    axes = figure.subplots()
    long = "qk_activ=none qk_norm=rms_norm attn_activ=sigmoid post_attn_norm=rms_norm"
    name_rows(axes, [2, 1, 0], ["base", long, f"{long} depth=12 width=384 rate=0.001"])
    figure.draw_without_rendering()
    first, second, third = [label.get_text() for label in axes.get_yticklabels()]
    assert first == "base"
    assert second.replace("\n", " ") == long
    assert second.count("\n") == third.count("\n") == 1
    assert third.endswith(" …")
    assert axes.get_position().width > 0.5
