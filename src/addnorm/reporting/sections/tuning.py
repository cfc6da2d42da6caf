"""Tuning: the losses of every variant's points on the tuning seeds, and which point is compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from addnorm.reporting.formats.table import Column, ResultTable, at, dashed
from addnorm.reporting.formats.text_table import filled
from addnorm.reporting.section import Section
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import View
from addnorm.words import Phrases, phrases


@dataclass(frozen=True, kw_only=True)
class PointLosses:
    """One point of a variant."""

    mean: float | None
    losses: tuple[float | None, ...]
    """Loss of each run, by seed; None without one."""
    lost: int
    """Number of runs that failed or diverged."""
    waiting: int
    """Number of runs that have not ended."""
    is_chosen: bool
    as_good: bool
    """True for another point that is as good as the chosen one within noise."""


class TuningSection(Section):
    """Points and choices. A page without tuning shows nothing of it."""

    order = 45
    absence = "setup"
    pages = ("overview", "ranking")
    follows = frozenset({"states", "ranking"})

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        outcome = snapshot.tuning
        # When the comparison has begun, the overview is about the models.
        if outcome is None or (view.is_live and view.page == "overview" and snapshot.runs):
            return {"tuning": None}
        content = outcome.to_json()
        notes = outcome.notes if snapshot.ranking is None else ()  # the verdicts have them
        return {"tuning": content, "points": columns(content), "rows": rows(content), "notes": notes}

    def is_measured(self, snapshot: Snapshot, variant: str | None) -> bool:
        return snapshot.tuning is not None


def columns(tuning: Mapping[str, Any]) -> list[str]:
    """Names of all points without the variant's: `learning_rate 1e-3`, each before those that follow it in its variant."""
    names: list[str] = []
    for of in tuning["variants"]:
        at = len(names)
        # Backwards, so that what only this variant has comes before the next name that another one has, too.
        for name in reversed([_short(of, point) for point in of["points"]]):
            if name in names:
                at = names.index(name)
            else:
                names.insert(at, name)
    return names


def rows(tuning: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row per variant: `variant`, `cells` (a `PointLosses` per point of `columns`, None for a point of others alone), and
    `optimum`, the key of what is known of it: `edge`, `flat`, `edge_flat`, `inside`, `open`.

    Args:
        tuning: the JSON of a tuning.
    """
    names = columns(tuning)
    table_rows = []
    for of in tuning["variants"]:
        cells = {_short(of, point): _cell(of, point) for point in of["points"]}
        optimum = "edge" if of["edges"] else "inside"
        if of["flat"]:
            optimum = "edge_flat" if of["edges"] else "flat"
        table_rows.append(
            {
                "variant": of["variant"],
                "cells": [cells.get(name) for name in names],
                "optimum": "open" if of["chosen"] is None else optimum,
            }
        )
    return table_rows


def text(tuning: Mapping[str, Any], width: int = 100, t: Phrases | None = None) -> str:
    """The points and choices for a terminal.

    Args:
        tuning: the JSON of a tuning.
        width: columns.
        t: phrases of the language; English if not given.
    """
    t = phrases("en") if t is None else t
    seeds = ", ".join(map(str, tuning["seeds"]))
    table_rows = rows(tuning)
    cells = [cell for row in table_rows for cell in row["cells"] if cell is not None]
    heading = [t("text.tuning", seeds=seeds)]
    heading += [t("text.mark_chosen")] if any(cell.is_chosen for cell in cells) else []
    heading += [t("text.mark_as_good")] if any(cell.as_good for cell in cells) else []
    heading += [t("text.mark_lost")] if any(cell.lost and cell.losses for cell in cells) else []
    points = (
        Column(point, form=dashed(lambda cell: _written(cell, t)), value=at("cells", place))
        for place, point in enumerate(columns(tuning))
    )
    optimum = Column("optimum", t("head.optimum"), lambda key: t(f"text.optimum_{key}"), "l")
    table = ResultTable([Column("variant", t("head.variant"), side="l"), *points, optimum], table_rows)
    title = filled(t("text.heading", text=t("joint.semicolon").join(heading)), width)
    return f"{title}\n\n{table.text(width)}\n"


def _short(of: Mapping[str, Any], point: Mapping[str, Any]) -> str:
    name: str = point["point"]
    return name.removeprefix(f"{of['variant']}, ")


def _cell(of: Mapping[str, Any], point: Mapping[str, Any]) -> PointLosses:
    is_chosen = point["point"] == of["chosen"]
    states = [run["state"] for run in point["runs"]]
    lost = sum(state in ("failed", "diverged") for state in states)
    return PointLosses(
        mean=point["mean"],
        losses=tuple(run["loss"] for run in point["runs"]),
        lost=lost,
        waiting=len(states) - lost - states.count("finished"),
        is_chosen=is_chosen,
        as_good=bool(point["as_good"]) and not is_chosen,
    )


def _written(cell: PointLosses, t: Phrases) -> str:
    if cell.waiting:
        return t("text.ended", ended=len(cell.losses) - cell.waiting, runs=len(cell.losses))
    value = t("verdict.failed") if cell.mean is None else f"{cell.mean:.4f}" + ("!" if cell.lost else "")
    return value + ("*" if cell.is_chosen else "~" if cell.as_good else "")
