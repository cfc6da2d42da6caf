"""The four terms of a score with rotary position and q/k biases (Su, 2023), as `addnorm inspect RUN --terms` measured them.

On a model's page: each term by distance, a panel per layer. As a figure: Su's two pictures per layer, the terms against the
distance and the scores of models side by side; bands are the least and the greatest of the heads' bands over samples. As text
and LaTeX: one line per layer. Heads are averaged.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from addnorm.reporting.drawing.figure_style import figure_of, new_figure, style, tidy
from addnorm.reporting.figure import Figure, Rows
from addnorm.reporting.formats.latex import number
from addnorm.reporting.formats.listing import grouped
from addnorm.reporting.formats.names import file_name
from addnorm.reporting.formats.numbers import fixed, mean, spread, ticks, trimmed
from addnorm.reporting.formats.table import Column, ResultTable
from addnorm.reporting.formats.text_table import aligned
from addnorm.reporting.reading.checkpoints import inspect_command
from addnorm.reporting.reading.foreign import is_foreign
from addnorm.reporting.reading.study_files import UNREADABLE, content_of
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import CHECKPOINT_PAGE, MODEL_PAGE, View
from addnorm.words import Phrases

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

NAME = "terms.json"
TERMS = {"qRk": "qᵀRk", "aRk": "aᵀRk", "qRb": "qᵀRb", "aRb": "aᵀRb"}
"""Each term's key in the file, and its formula."""
_BIASES = {"qRk": (), "aRk": ("q_bias",), "qRb": ("k_bias",), "aRb": ("q_bias", "k_bias")}
"""Biases that a model must have for a term to occur in its scores; a is the query bias, b the key bias."""
_MOST_ROWS = 17
"""Of a table; a curve has as many points as the texts have distances."""
_IN_FIGURE = {"qRk": "$q^T R k$", "aRk": "$a^T R k$", "qRb": "$q^T R b$", "aRb": "$a^T R b$"}
_IN_LATEX = ("$q^{\\top}Rk$", "$a^{\\top}Rk$", "$q^{\\top}Rb$", "$a^{\\top}Rb$")
_HEADING = "How much each term changes with the distance (standard deviation), and mean directions (0: isotropic)"
MOST_MODELS = 4
"""Models whose score terms stand side by side in one figure."""
MOST_LAYERS = 6
"""Layers of the figure."""
_MOST_DISTANCES = 9
"""Distances in the figure's table."""


@dataclass(frozen=True, kw_only=True)
class LayerTerms:
    """One layer, heads averaged."""

    layer: int
    swings: tuple[float, ...]
    """Standard deviation of each term over the distances."""
    query: float
    """Length of the mean direction of q; 0 if q is isotropic."""
    key: float
    chance: float
    """Expected length for as many random directions."""
    lines: tuple[str, ...]
    """Points of each term's curve, in thousandths of the panel."""
    table: tuple[tuple[float, tuple[float, ...]], ...]
    """The curves' values at some of the distances."""
    y_ticks: tuple[tuple[float, str], ...]
    trained: float | None
    """Position of the train length in per cent across; None beyond the panel."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """One run's terms."""

    run: str
    samples: int
    length: int
    farthest: float
    """Largest distance in tokens."""
    names: tuple[str, ...]
    """Formulas of the terms that occur in the model's scores."""
    layers: tuple[LayerTerms, ...]


def terms(snapshot: Snapshot, variant: str) -> Terms | None:
    """The terms of the first of the variant's runs that has them, or of a checkpoint; None without any."""
    for place in snapshot.measured_in(variant):
        content = content_of(snapshot, f"{place.folder}/{NAME}")
        try:
            if content:
                return _read(place.name, content)
        except UNREADABLE:
            continue
    return None


def _read(run: str, content: Mapping[str, Any]) -> Terms:
    rows = content["rows"]
    built = [term for term, biases in _BIASES.items() if all(content.get(bias, True) for bias in biases)]
    return Terms(
        run=run,
        samples=int(content["samples"]),
        length=int(content["length"]),
        farthest=float(rows[0]["distances"][-1]),
        names=tuple(TERMS[term] for term in built),
        layers=tuple(
            _layer([row for row in rows if row["layer"] == layer], layer, built)
            for layer in sorted({int(row["layer"]) for row in rows})
        ),
    )


def _layer(heads: Sequence[Mapping[str, Any]], layer: int, built: Sequence[str]) -> LayerTerms:
    curves = [
        [mean(values) for values in zip(*(row["terms"][term]["mean"] for row in heads), strict=True)] for term in built
    ]
    distances = [float(distance) for distance in heads[0]["distances"]]
    values = [value for curve in curves for value in curve]
    low, high = min(values), max(values)
    pad = (high - low) * 0.08 or 1.0
    low, high = low - pad, high + pad
    first, last = distances[0], max(distances[-1], distances[0] + 1)

    def point(distance: float, value: float) -> str:
        return f"{1000 * (distance - first) / (last - first):.1f},{1000 * (high - value) / (high - low):.1f}"

    trained = heads[0]["trained"]
    return LayerTerms(
        layer=layer,
        swings=tuple(mean([_swing(row["terms"][term]["mean"]) for row in heads]) for term in built),
        query=mean([row["isotropy"]["query"] for row in heads]),
        key=mean([row["isotropy"]["key"] for row in heads]),
        chance=float(heads[0]["isotropy"]["chance"]),
        lines=tuple(
            " ".join(point(distance, value) for distance, value in zip(distances, curve, strict=True))
            for curve in curves
        ),
        table=tuple(
            (distances[place], tuple(curve[place] for curve in curves)) for place in spread(len(distances), _MOST_ROWS)
        ),
        y_ticks=tuple((100 * (high - at) / (high - low), trimmed(at, 4)) for at in ticks(low, high, 4)),
        trained=100 * (trained - first) / (last - first) if trained is not None and trained <= last else None,
    )


def score_term_rows(snapshot: Snapshot, t: Phrases) -> Rows:
    """The rows of the first terms.json of each model, of the first models that have one."""
    shown = [(model, read) for model in snapshot.models if (read := terms(snapshot, model)) is not None]
    folders = [
        place.folder
        for model, read in shown[:MOST_MODELS]
        for place in snapshot.measured_in(model)
        if place.name == read.run
    ]
    return [row for folder in folders for row in content_of(snapshot, f"{folder}/{NAME}")["rows"]]


def long_terms(rows: Rows) -> Rows:
    """One row per model, layer, head, term and distance."""
    return [
        {
            **{name: row[name] for name in ("label", "layer", "head")},
            "term": term,
            "distance": distance,
            **{kind: curve[kind][place] for kind in ("mean", "low", "high")},
        }
        for row in rows
        for term, curve in row["terms"].items()
        for place, distance in enumerate(row["distances"])
    ]


@figure_of("row of score terms")
def figure(rows: Sequence[Mapping[str, Any]], t: Phrases) -> "MatplotlibFigure":
    """The figure of one model's terms, or of several models' side by side: a line of panels per layer, at most six layers,
    evenly chosen.

    Args:
        rows: `rows` of `addnorm inspect --terms --json`: one per model, layer and head.
        language: of the labels.
    """
    models = list(dict.fromkeys(row["label"] for row in rows))
    layers = sorted({row["layer"] for row in rows})
    layers = [layers[place] for place in spread(len(layers), MOST_LAYERS)]
    drawn = new_figure(4.2 * (len(models) + 1), 2.6 * len(layers))
    panels = drawn.subplots(len(layers), len(models) + 1, squeeze=False)
    across = t("plot.distance")
    for line, layer in zip(panels, layers, strict=True):
        for index, model in enumerate(models):
            heads = [row for row in rows if row["layer"] == layer and row["label"] == model]
            if not heads:
                continue
            for place, (term, name) in enumerate(_IN_FIGURE.items()):
                _curve(line[index], heads, term, name, place)
            tidy(line[index], title=t("plot.terms_of_layer", name=model, layer=str(layer)), across=across)
            _curve(line[-1], heads, "sum", model, 2 * index)
            _curve(line[-1], heads, "qRk", t("plot.first_term", name=model), 2 * index + 1)
            for axes in (line[index], line[-1]):
                _mark(axes, heads[0]["trained"])
        tidy(line[-1], title=t("plot.scores_of_layer", layer=str(layer)), across=across)
    for axes in panels[0]:
        axes.legend(fontsize=7, frameon=False, handlelength=3.2)
    return drawn


def _curve(axes: "Axes", rows: Sequence[Mapping[str, Any]], term: str, name: str, place: int) -> None:
    distances = rows[0]["distances"]
    curves = {kind: [row["terms"][term][kind] for row in rows] for kind in ("mean", "low", "high")}
    mean = [sum(values) / len(values) for values in zip(*curves["mean"], strict=True)]
    low = [min(values) for values in zip(*curves["low"], strict=True)]
    high = [max(values) for values in zip(*curves["high"], strict=True)]
    look = {name: value for name, value in style(place).items() if name != "marker"}
    axes.fill_between(distances, low, high, color=look["color"], alpha=0.12, linewidth=0)
    axes.plot(distances, mean, label=name, linewidth=1.2, **look)


def _mark(axes: "Axes", trained: int | None) -> None:
    """The level of no score, and the train length where it is known."""
    axes.axhline(0, color="0.8", linewidth=0.6, zorder=0)
    if trained is not None:
        axes.axvline(trained, color="0.7", linewidth=0.8, zorder=0)


def _figure_table(rows: Rows, t: Phrases) -> ResultTable:
    terms = zip((*TERMS, "sum"), (*TERMS.values(), t("figures.sum")), strict=True)
    columns = (
        Column("label", t("common.run"), side="l"),
        Column("layer", t("scalars.layer")),
        Column("distance", t("terms.distance"), "{:g}".format),
        *(Column(term, words, lambda mean: fixed(mean, 3)) for term, words in terms),
    )
    lines = []
    for (label, layer), heads in grouped(rows, lambda row: (row["label"], row["layer"])):
        distances = heads[0]["distances"]
        for place in spread(len(distances), _MOST_DISTANCES):
            means = {term: mean([head["terms"][term]["mean"][place] for head in heads]) for term in (*TERMS, "sum")}
            lines.append({"label": label, "layer": layer, "distance": distances[place], **means})
    return ResultTable(columns, lines)


def text(measured: Mapping[str, Any], width: int = 100) -> str:
    """The tables of all models, for a terminal.

    Args:
        measured: `models` and `rows`.
        width: columns of the terminal.
    """
    parts = []
    for model in measured["models"]:
        rows = [row for row in measured["rows"] if row["label"] == model["label"]]
        parts += [_about(model, width), _sizes(rows, width), _fall(rows, model, width)]
    return "\n\n".join(parts) + "\n"


def latex(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Change of each term with the distance, and mean directions: a table per run, a line per layer."""
    directions = {"query": r"$\bar q$", "key": r"$\bar k$", "chance": "chance"}
    columns = (
        Column("layer", side="l"),
        *(Column(*each, lambda swing: number(swing, 3)) for each in zip(TERMS, _IN_LATEX, strict=True)),
        *(Column(*each, lambda length: number(length, 2)) for each in directions.items()),
    )
    return {
        label: ResultTable(columns, _measured(of)).latex(f"{label}: {_HEADING}; heads averaged.")
        for label, of in grouped(rows, lambda row: str(row["label"]))
    }


def _about(model: Mapping[str, Any], width: int) -> str:
    bias = {(True, True): "q and k biases", (True, False): "a q bias", (False, True): "a k bias"}.get(
        (model["q_bias"], model["k_bias"]), "no q or k bias"
    )
    trained = "" if model["trained"] is None else f", trained at {model['trained']}"
    return textwrap.fill(
        f"{model['run']}: {bias}; {model['samples']} texts of {model['length']} tokens{trained}. The four terms add up to the "
        f"model's scores: largest difference {model['largest_error']:.1e}, rounding explains up to {model['rounding']:.1e}.",
        width,
    )


def _sizes(rows: Sequence[Mapping[str, Any]], width: int) -> str:
    columns = (
        Column("layer"),
        *(Column(*each, "{:.3f}".format) for each in TERMS.items()),
        Column("query", "|mean q̂|", "{:.2f}".format),
        Column("key", "|mean k̂|", "{:.2f}".format),
        Column("chance", "by chance", "{:.2f}".format),
    )
    return f"{_HEADING}:\n{ResultTable(columns, _measured(rows)).text(width)}"


def _measured(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """By layer: standard deviation of each term over the distances, and lengths of the mean directions."""
    return [
        {"layer": layer}
        | {term: mean([_swing(row["terms"][term]["mean"]) for row in heads]) for term in TERMS}
        | {name: mean([row["isotropy"][name] for row in heads]) for name in ("query", "key", "chance")}
        for layer, heads in _by_layer(rows)
    ]


def _fall(rows: Sequence[Mapping[str, Any]], model: Mapping[str, Any], width: int) -> str:
    """The scores at some distances, with the biases and without, next to each other."""
    distances = rows[0]["distances"]
    trained = model["trained"] or distances[-1]
    places = sorted(
        {_nearest(distances, wanted) for wanted in (0.0, trained / 4, trained / 2, float(trained), distances[-1])}
    )
    head = ["layer", *(f"d={distances[place]:g}" for place in places for _ in (0, 1))]
    kinds = ["", *(name for _ in places for name in ("with", "without"))]
    body = []
    for layer, heads in _by_layer(rows):
        cells = [
            f"{mean([row['terms'][term]['mean'][place] for row in heads]):.3f}"
            for place in places
            for term in ("sum", "qRk")
        ]
        body.append([str(layer), *cells])
    return "Mean score by distance, with the biases and with the first term alone:\n" + aligned(
        [head, kinds, *body], left=(), width=width
    )


def _by_layer(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Any, list[Mapping[str, Any]]]]:
    return grouped(rows, lambda row: row["layer"])


def _swing(curve: Sequence[float | int]) -> float:
    middle = mean(curve)
    return math.sqrt(mean([(value - middle) ** 2 for value in curve]))


def _nearest(distances: Sequence[float], wanted: float) -> int:
    return min(range(len(distances)), key=lambda place: abs(distances[place] - wanted))


def _files(snapshot: Snapshot, rows: Rows) -> Mapping[str, str]:
    tables = {f"score_terms-{file_name(label)}.tex": text for label, text in latex(rows).items()}
    return {"score_terms.csv": ResultTable.of(long_terms(rows)).csv(), **tables}


class TermsSection(Section):
    """The four terms of one model's scores."""

    order = 160
    absence = "weights"
    pages = (MODEL_PAGE, CHECKPOINT_PAGE)
    in_report = "model"
    sources = frozenset({"study", "checkpoints"})
    run_files = (NAME,)
    figures = (
        Figure(
            name="score_terms",
            caption="Four terms of the scores by distance, one run of each model; heads averaged.",
            rows=score_term_rows,
            numbers=("terms",),
            draw=figure,
            table=_figure_table,
            files=_files,
            is_on_demand=True,
        ),
    )

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        variant = view.variant or ""
        return {
            "terms": terms(snapshot, variant),
            "is_foreign": is_foreign(snapshot, variant),
            "command": f"{inspect_command(snapshot, variant)} --terms",
        }

    def is_measured(self, snapshot: Snapshot, variant: str | None) -> bool:
        return variant is not None and terms(snapshot, variant) is not None
