"""Measurements of `addnorm inspect` as text (a row per layer of one run, or a row per run) and as LaTeX."""

import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from addnorm.reporting.formats.latex import escaped, significant, tabular
from addnorm.reporting.formats.numbers import spread
from addnorm.reporting.formats.text_table import aligned
from addnorm.reporting.measures import measures

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
    return textwrap.fill(" ".join([*parts, "A column is missing where the model has no such thing."]), width)


def text(found: Mapping[str, Any], width: int = 100) -> str:
    """The text output of `addnorm inspect`, not wider than `width`."""
    runs = found["runs"]
    parts = [_run(run, width) for run in runs] if len(runs) == 1 else [_summary(runs, width)]
    parts.append(
        legend(width)
        if len(runs) == 1
        else "Layer by layer: give one run's folder. All of it: --json, or insight.json."
    )
    parts += [textwrap.fill(f"Not found: {sentence}", width) for run in runs for sentence in run.get("missing", ())]
    parts += [f"skipped {name}: {reason}" for name, reason in found["skipped"].items()]
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
    lines = [[escaped(name), *(_mean_cell(values.get((key, name, layer), [])) for layer in shown)] for name in names]
    return tabular("l" + "r" * len(shown), ["variant", *map(str, shown)], lines, [about])


def _mean_cell(values: Sequence[float]) -> str:
    return significant(sum(values) / len(values) if values else None)


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
    lines = [[*shown.values()]]
    lines += [[_cell(row, key) for key in shown] for row in rows]
    amount = f"{data['sequences']} sequences of {data['seq']} tokens; attention on {data['map_sequences']}"
    head = f"{run['run']}: {state} ({amount})"
    return f"{textwrap.fill(head, width)}\n\n{aligned(lines, width=width)}"


def _summary(runs: Sequence[Mapping[str, Any]], width: int) -> str:
    lines = [
        [
            "run",
            "step",
            "first / last gradient: start",
            "end",
            "stream grows: start",
            "end",
            "entropy: first",
            "last",
            "one-hot",
            "own scores, last",
        ]
    ]
    for run in runs:
        start, end = run["start"]["layers"], run["end"]["layers"]
        lines.append(
            [
                run["run"],
                str(run["weights"]["step"]),
                _ratio(start[0]["gradient"], start[-1]["gradient"]),
                _ratio(end[0]["gradient"], end[-1]["gradient"]),
                _ratio(start[-1]["rms"], run["start"]["embedding"]["rms"]),
                _ratio(end[-1]["rms"], run["end"]["embedding"]["rms"]),
                _cell(end[0], "entropy"),
                _cell(end[-1], "entropy"),
                _cell(end[-1], "one_hot"),
                _cell(end[-1], "own_share"),
            ]
        )
    return aligned(lines, width=width)


def _ratio(one: float | None, other: float | None) -> str:
    return "–" if one is None or not other else _number(one / other)


def _cell(row: Mapping[str, Any], key: str) -> str:
    if key == "layer":
        return str(row["layer"])
    return _number(row[key]) if key in row else "–"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"
