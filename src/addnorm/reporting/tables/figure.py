"""The numbers behind each of a report's figures, as a table that stands with it. The same rows, in fewer digits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.pages.numbers import fixed, percent, quantity, signed, size
from addnorm.reporting.pages.terms import TERMS
from addnorm.words import Phrases

_Rows = Sequence[Mapping[str, Any]]
_Line = tuple[str, ...]
_STEPS = 6
"""Points of a curve at most."""
_DISTANCES = 9
"""Distances of a term at most."""


@dataclass(frozen=True, kw_only=True)
class FigureTable:
    """A table of texts; its first columns are names, the others numbers."""

    header: _Line
    names: int
    """How many columns are names."""
    lines: tuple[_Line, ...]


def figure_table(name: str, rows: _Rows, t: Phrases) -> FigureTable:
    """The table of one figure.

    Args:
        name: the figure's.
        rows: what it is drawn from.
        t: words of the table's language.
    """
    header, names, lines = _MAKERS.get(name, _layers)(rows, t)
    return FigureTable(header=header, names=names, lines=tuple(lines))


_Made = tuple[_Line, int, list[_Line]]


def _ranking(rows: _Rows, t: Phrases) -> _Made:
    header = ("common.model", "ladder.tier", "common.rank", "common.seeds", "common.loss", "figures.interval")
    return (
        tuple(map(t, header)),
        2,
        [
            (
                row["variant"],
                row["tier"],
                "–" if row["rank_interval"] is None else "–".join(map(str, dict.fromkeys(row["rank_interval"]))),
                str(len(row["values"])),
                fixed(row["mean"], 4),
                _ends(row["interval"], 4),
            )
            for row in rows
        ],
    )


def _differences(rows: _Rows, t: Phrases) -> _Made:
    header = ("common.model", "common.reference", "scalars.verdict", "figures.difference", "figures.interval")
    return (
        tuple(map(t, header)),
        3,
        [
            (
                row["variant"],
                row["reference"],
                row["verdict_word"],
                signed(row["difference"], 5),
                _ends(row["interval"], 5),
            )
            for row in rows
        ],
    )


def _curves(rows: _Rows, t: Phrases) -> _Made:
    metrics = {"train_loss": "metric.train.loss", "loss": "metric.eval.loss", "accuracy": "metric.eval.accuracy"}
    header = ("common.model", "curves.metric", "common.steps", "figures.mean", "figures.least", "figures.largest")
    return (
        tuple(map(t, header)),
        2,
        [
            (
                row["variant"],
                t(metrics[row["metric"]]),
                str(row["steps"][at]),
                *(fixed(row[which][at], 4) for which in ("mean", "low", "high")),
            )
            for row in rows
            for at in _spread(len(row["steps"]), _STEPS)
        ],
    )


def _scalars(rows: _Rows, t: Phrases) -> _Made:
    header = (
        "common.model",
        "figures.parameter",
        "scalars.entry",
        "scalars.init",
        "scalars.decay_only",
        "figures.mean",
    )
    return (
        tuple(map(t, header)),
        3,
        [
            (
                row["variant"],
                row["parameter"],
                row["entry"],
                fixed(row["init"], 4),
                fixed(row["decay_only"], 4),
                fixed(_mean(row["finals"]), 4),
            )
            for row in rows
        ],
    )


def _costs(rows: _Rows, t: Phrases) -> _Made:
    header = ("common.model", "cost.parameters", "cost.flops", "cost.speed", "cost.peak", "cost.wall")
    return (
        tuple(map(t, header)),
        1,
        [
            (
                row["variant"],
                quantity(row["parameters"]),
                quantity(row["flops_per_token"]),
                quantity(row["tokens_per_s"]),
                size(row["peak_bytes"]),
                "–" if row["wall_s"] is None else t("time.seconds", s=round(row["wall_s"])),
            )
            for row in rows
        ],
    )


def _layers(rows: _Rows, t: Phrases) -> _Made:
    header = ("common.model", "scalars.layer", "insight.at_start", "insight.at_end")
    return (
        tuple(map(t, header)),
        1,
        [(row["variant"], str(row["layer"]), *(_short(_mean(row[when])) for when in ("start", "end"))) for row in rows],
    )


def _extrapolation(rows: _Rows, t: Phrases) -> _Made:
    header = ("common.model", "figures.tokens", "common.loss", "figures.interval", "common.accuracy")
    longest = max(row["length"] for row in rows)
    lines: list[_Line] = [
        (
            row["label"],
            str(row["length"]),
            fixed(row["loss"], 4),
            _ends(row["loss_interval"], 4),
            percent(row["accuracy"]),
        )
        for row in rows
    ]
    lines += [
        (
            row["label"],
            f"{bucket['from']}–{bucket['to']} / {longest}",
            fixed(bucket["loss"], 4),
            _ends(bucket["loss_interval"], 4),
            "",
        )
        for row in rows
        if row["length"] == longest
        for bucket in row["buckets"]
    ]
    return tuple(map(t, header)), 1, lines


def _score_terms(rows: _Rows, t: Phrases) -> _Made:
    header = (t("common.run"), t("scalars.layer"), t("terms.distance"), *TERMS.values(), t("figures.sum"))
    lines = []
    for label, layer in dict.fromkeys((row["label"], row["layer"]) for row in rows):
        heads = [row for row in rows if (row["label"], row["layer"]) == (label, layer)]
        distances = heads[0]["distances"]
        for at in _spread(len(distances), _DISTANCES):
            means = [_mean([head["terms"][term]["mean"][at] for head in heads]) for term in (*TERMS, "sum")]
            lines.append((label, str(layer), f"{distances[at]:g}", *(fixed(mean, 3) for mean in means)))
    return header, 1, lines


_MAKERS: dict[str, Callable[[_Rows, Phrases], _Made]] = {
    "ranking": _ranking,
    "differences": _differences,
    "curves": _curves,
    "scalars": _scalars,
    "costs": _costs,
    "extrapolation": _extrapolation,
    "score_terms": _score_terms,
}
"""All others are measures over depth."""


def _ends(interval: Sequence[float | int] | None, digits: int) -> str:
    return "–" if interval is None else f"[{fixed(interval[0], digits)}, {fixed(interval[1], digits)}]"


def _mean(values: Sequence[float | int | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _spread(count: int, most: int) -> list[int]:
    """Up to `most` places, the first and the last among them."""
    shown = min(count, most)
    return list(dict.fromkeys(round(k * (count - 1) / max(1, shown - 1)) for k in range(shown)))
