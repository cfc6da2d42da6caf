"""Measurements of `addnorm inspect` as text (a row per layer of one run, or a row per run) and as LaTeX."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from addnorm.reporting.formats.latex import escaped, significant
from addnorm.reporting.formats.numbers import mean_of_known, spread
from addnorm.reporting.formats.table import Column, ResultTable, at
from addnorm.reporting.formats.text_table import filled
from addnorm.reporting.measures import measures
from addnorm.words import spoken, translated

_MOST_LAYERS = 6
"""Columns of a LaTeX table."""


def columns() -> dict[str, str]:
    """Titles of the columns of a table of layers, by key."""
    return {"layer": "layer"} | {
        key: title for measure in measures().values() for key, title in measure.columns.items()
    }


def legend(width: int = 100) -> str:
    """Explanation of the columns."""
    parts = [f"{measure.legend}." for measure in measures().values()]
    sentences = [*map(translated, parts), translated("A column is missing where the model has no such thing.")]
    return filled(spoken()("common.between_sentences").join(sentences), width)


def text(inspected: Mapping[str, Any], width: int = 100) -> str:
    """The text output of `addnorm inspect`, not wider than `width`."""
    runs = inspected["runs"]
    parts = [_run(run, width) for run in runs] if len(runs) == 1 else [_summary(runs, width)]
    parts.append(
        legend(width)
        if len(runs) == 1
        else translated("Layer by layer: give one run's folder. All of it: --json, or insight.json.")
    )
    parts += [
        filled(translated(f"Not found: {sentence}"), width) for run in runs for sentence in run.get("missing", ())
    ]
    parts += [filled(translated(f"! {name} was left out: {why}"), width) for name, why in inspected["skipped"].items()]
    return "\n\n".join(parts)


def latex(rows: Sequence[Mapping[str, Any]], about: str = "Means over seeds") -> dict[str, str]:
    """A table per measure at the end of training: a line per variant, up to six layers; means over seeds.

    Args:
        rows: one measure of one layer of one run each: `variant`, `step` (0 at the start, None of a checkpoint), `layer`,
            `measure`, `value`.
        about: what the numbers are, below the tables.

    Returns:
        The tables by measure; `gradient_start` before training.
    """
    values: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for row in rows:
        key = row["measure"] if row["step"] != 0 else f"{row['measure']}_start"
        if row["value"] is not None:
            values[key, row["variant"], row["layer"]].append(row["value"])
    titles = {key: title for key, title in columns().items() if any(key == measure for measure, _, _ in values)}
    trained = any(row["step"] is not None for row in rows)
    tables = {}
    for key, title in titles.items():
        when = ", at the end of training" if trained and "start" not in title else ""
        tables[key] = _measure_table(key, f"{title} by layer. {about}{when}.", values)
    return tables


def _measure_table(key: str, about: str, values: Mapping[tuple[str, str, int], Sequence[float]]) -> str:
    layers = sorted({layer for measure, _, layer in values if measure == key})
    shown = [layers[place] for place in spread(len(layers), _MOST_LAYERS)]
    names = dict.fromkeys(variant for measure, variant, _ in values if measure == key)
    rows = [
        {"variant": name, **{layer: mean_of_known(values.get((key, name, layer), ())) for layer in shown}}
        for name in names
    ]
    columns = (Column(str(layer), form=significant, value=at(layer)) for layer in shown)
    return ResultTable([Column("variant", form=escaped, side="l"), *columns], rows).latex(about)


def _run(run: Mapping[str, Any], width: int) -> str:
    weights, data = run["weights"], run["data"]
    rows = run["end"]["layers"]
    if "start" in run:  # a checkpoint has none
        rows = [
            {**end, "gradient_start": start["gradient"]}
            for start, end in zip(run["start"]["layers"], rows, strict=True)
        ]
        losses = f"held-out loss {_number(run['start']['loss'])} at the start, {_number(run['end']['loss'])} now"
        state = f"step {weights['step']} of {weights['steps']}, {losses}"
    else:
        has_loss = "gradient" in run["end"]  # without logits, there is neither
        state = f"loss {_number(run['end']['loss'])} on {data['text']}" if has_loss else f"measured on {data['text']}"
    titles = columns() if "start" in run else columns() | {"gradient": "gradient"}
    shown = {key: title for key, title in titles.items() if any(key in row for row in rows)}
    layers = ResultTable(
        [
            Column(key, title, side="l" if key == "layer" else "r", value=partial(_cell, key=key))
            for key, title in shown.items()
        ],
        rows,
    )
    amount = f"{data['sequences']} sequences of {data['seq']} tokens; attention on {data['map_sequences']}"
    head = translated(f"{run['run']}: {state} ({amount})")
    return f"{filled(head, width)}\n\n{layers.text(width)}"


def _summary(runs: Sequence[Mapping[str, Any]], width: int) -> str:
    def gradient(moment: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda run: _ratio(*(run[moment]["layers"][place]["gradient"] for place in (0, -1)))

    def growth(moment: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda run: _ratio(run[moment]["layers"][-1]["rms"], run[moment]["embedding"]["rms"])

    def end(place: int, key: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda run: _cell(run["end"]["layers"][place], key)

    columns = (
        Column("run", side="l"),
        Column("step", value=at("weights", "step")),
        Column("first / last gradient: start", value=gradient("start")),
        Column("end", value=gradient("end")),
        Column("stream grows: start", value=growth("start")),
        Column("end", value=growth("end")),
        Column("entropy: first", value=end(0, "entropy")),
        Column("last", value=end(-1, "entropy")),
        Column("one-hot", value=end(-1, "one_hot")),
        Column("own scores, last", value=end(-1, "own_share")),
    )
    return ResultTable(columns, runs).text(width)


def _ratio(one: float | None, other: float | None) -> str:
    return "–" if one is None or not other else _number(one / other)


def _cell(row: Mapping[str, Any], key: str) -> str:
    if key == "layer":
        return str(row["layer"])
    return _number(row[key]) if key in row else "–"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"
