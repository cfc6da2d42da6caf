"""Training curves as a LaTeX table (booktabs): a line per variant and measure, some steps, the last value and the best."""

from collections.abc import Mapping, Sequence
from typing import Any

from addnorm.reporting.tables.latex import NONE, escaped, number, tabular

_STEPS = 5
"""Columns of steps before the last, at most."""
_MEASURES = {"train_loss": "training loss", "loss": "loss", "accuracy": r"accuracy, \%"}
_FACTORS = {"accuracy": 100.0}
_DIGITS = {"accuracy": 2}


def latex(rows: Sequence[Mapping[str, Any]]) -> str:
    """Held-out measures, or the training loss where nothing was evaluated.

    Args:
        rows: those of the figure of curves: `variant`, `metric`, `steps`, `mean`, `low`, `high`.
    """
    drawn = [row for row in rows if row["steps"]]
    evaluated = [row for row in drawn if row["metric"] != "train_loss"]
    shown = evaluated or drawn
    steps = _some(sorted({step for row in shown for step in row["steps"]})[:-1])
    head = ["variant", "measure", *(f"step {step}" for step in steps), "last", "range", "best", "at step"]
    return tabular(
        "ll" + "r" * len(steps) + "rlrr",
        head,
        [_line(row, steps) for row in shown],
        (
            "Means over the seeds that have reached a step; losses in nats per token. Range: least and largest seed at the",
            "last step. Best: the best mean of any step, which is chosen after the fact; compare the last.",
        ),
    )


def _line(row: Mapping[str, Any], steps: Sequence[int]) -> list[str]:
    factor, digits = _FACTORS.get(row["metric"], 1.0), _DIGITS.get(row["metric"], 4)
    at = dict(zip(row["steps"], row["mean"], strict=True))
    best = (max if row["metric"] == "accuracy" else min)(at, key=lambda step: at[step])
    cells = [number(None if step not in at else factor * at[step], digits) for step in steps]
    last, low, high = (factor * row[name][-1] for name in ("mean", "low", "high"))
    spread = NONE if low == high else f"$[{low:.{digits}f}, {high:.{digits}f}]$"
    best_cells = [number(factor * at[best], digits), str(best)]
    return [escaped(row["variant"]), _MEASURES[row["metric"]], *cells, number(last, digits), spread, *best_cells]


def _some(steps: Sequence[int]) -> list[int]:
    """Some of the steps, evenly spread."""
    count = min(_STEPS, len(steps))
    return [steps[(place + 1) * len(steps) // count - 1] for place in range(count)]
