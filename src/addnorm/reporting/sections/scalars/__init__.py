"""Learned scalars: their values next to what weight decay alone would have left, and the verdicts of `addnorm explain`."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from addnorm.reporting.drawing.figure_style import figure_of, grid_of_panels, legend_below, new_figure, tidy
from addnorm.reporting.figure import Figure, Rows
from addnorm.reporting.formats.listing import grouped
from addnorm.reporting.formats.names import file_name
from addnorm.reporting.formats.numbers import fixed, mean_of_known
from addnorm.reporting.formats.table import Column, ResultTable
from addnorm.reporting.reading.checkpoints import study_command
from addnorm.reporting.section import Section
from addnorm.reporting.sections.scalars import verdicts
from addnorm.reporting.sections.scalars.over_seeds import over_seeds, sentences
from addnorm.reporting.sections.scalars.record import ScalarEntry, ScalarFamily, families, has_families
from addnorm.reporting.sections.scalars.table import latex
from addnorm.reporting.sections.scalars.verdicts import Explained, explained
from addnorm.reporting.snapshot import Snapshot
from addnorm.reporting.view import MODEL_PAGE, View
from addnorm.store import scalar_record
from addnorm.words import Phrases, phrases

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

_MOST_FAMILIES = 12
_MOST_ICONS = 40
"""In one chart; with more they would touch each other, and the table says each number's verdict anyway."""


_MOST_ENTRIES = 300
"""Numbers of a parameter that are drawn and tabled. Of more, some at equal distances: with all numbers of a vector in each of
24 layers, a report had 20 MB and its pictures showed bands. Files and verdicts have all."""


def scalar_rows(snapshot: Snapshot, t: Phrases) -> Rows:
    """One row per learned scalar of every variant."""
    return [
        {
            "variant": family.variant,
            "parameter": family.name,
            "layer": entry.layer,
            "entry": entry.label,
            "init": entry.init,
            "decay_only": entry.decay_only,
            "seeds": [seed for seed, _ in entry.finals],
            "finals": [value for _, value in entry.finals],
        }
        for family in families(snapshot, snapshot.variants)
        for entry in family.entries
    ]


def long_scalars(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """Scalars as a table: one seed's value per row."""
    return [
        {name: row[name] for name in ("variant", "parameter", "layer", "entry", "init", "decay_only")}
        | {"seed": seed, "final": value}
        for row in rows
        for seed, value in zip(row["seeds"], row["finals"], strict=True)
    ]


_ACROSS = 3
_MOST_MARKS = 12
"""Layers with a number below a panel; more would touch each other."""
_LETTERS = 16
"""Of a variant's name in one line below a panel."""
_MOST_BESIDE = 3
"""Names of so many letters that stand beside each other below a panel."""


@figure_of("learned scalar")
def figure(rows: Sequence[Mapping[str, Any]], t: Phrases) -> "MatplotlibFigure":
    """The figure of learned scalars, a panel per variant and parameter; parameters of one number share one over the variants.

    Args:
        rows: one per entry: `variant`, `parameter`, `layer` (0-based, or None), `init`, `decay_only`, `finals` (a value
            per seed).
        language: of the labels.
    """
    sizes = Counter((row["variant"], row["parameter"]) for row in rows)
    alone = {key for key, size in sizes.items() if size == 1}
    groups = grouped(
        rows, lambda row: ("" if (row["variant"], row["parameter"]) in alone else row["variant"], row["parameter"])
    )
    across = min(_ACROSS, len(groups))
    drawn = new_figure(0.6 + 3.6 * across, 0.8 + 2.5 * -(-len(groups) // across))
    panels = grid_of_panels(drawn, len(groups), across)
    for axes, ((variant, parameter), of_all) in zip(panels, groups, strict=True):
        entries = _spread(of_all)
        places = range(len(entries))
        axes.step(
            [place - 0.5 for place in (*places, len(entries))],
            [*(entry["decay_only"] for entry in entries), entries[-1]["decay_only"]],
            where="post",
            color="black",
            linestyle=(0, (4, 2)),
            linewidth=1.1,
            label=t("plot.decay_only"),
        )
        starts = [entry["init"] for entry in entries]
        axes.plot(places, starts, "_", markersize=9, color="0.5", label=t("plot.init"))
        points = [(place, value) for place, entry in enumerate(entries) for value in entry["finals"]]
        dots: dict[str, Any] = {"markersize": 4, "color": "#0072b2", "markeredgecolor": "black", "markeredgewidth": 0.4}
        axes.plot([place for place, _ in points], [value for _, value in points], "o", label=t("plot.final"), **dots)
        firsts = [place for place in places if place == 0 or entries[place]["layer"] != entries[place - 1]["layer"]]
        for place in firsts[1:]:
            axes.axvline(place - 0.5, color="0.85", linewidth=0.6, zorder=0)
        layered = entries[0]["layer"] is not None
        if not variant:
            slanted: dict[str, Any] = {"rotation": 30, "ha": "right"} if len(entries) > _MOST_BESIDE else {}
            axes.set_xticks(places, [_folded(entry["variant"]) for entry in entries], **slanted)
            axes.set_xlim(-0.75, len(entries) - 0.25)
        elif layered:
            marked = firsts[:: -(-len(firsts) // _MOST_MARKS)]
            axes.set_xticks(marked, [str(entries[place]["layer"]) for place in marked])
        else:
            axes.locator_params(axis="x", integer=True)
        below = t("plot.entry_by_layer" if layered else "plot.entry") if variant else ""
        if len(entries) < len(of_all):
            below += f" ({t('scalars.some', shown=len(entries), all=len(of_all))})"
        tidy(axes, title=f"{variant}  {parameter}".strip(), across=below)
    legend_below(drawn, panels[0])
    return drawn


_Entry = TypeVar("_Entry")


def _spread(entries: Sequence[_Entry]) -> Sequence[_Entry]:
    """At most `_MOST_ENTRIES` entries of a parameter, at equal distances."""
    return entries[:: -(-len(entries) // _MOST_ENTRIES)]


def _folded(name: str) -> str:
    """A variant's name in lines that leave room for its neighbours'."""
    lines = [""]
    for part in re.findall(r"[^_\-, ]*[_\-, ]*", name):
        if lines[-1] and len(lines[-1] + part) > _LETTERS:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _figure_table(rows: Rows, t: Phrases) -> ResultTable:
    columns = (
        Column("variant", t("common.model"), side="l"),
        Column("parameter", t("figures.parameter"), side="l"),
        Column("entry", t("scalars.entry"), side="l"),
        Column("init", t("scalars.init"), lambda value: fixed(value, 4)),
        Column("decay_only", t("scalars.decay_only"), lambda value: fixed(value, 4)),
        Column("finals", t("figures.mean"), lambda finals: fixed(mean_of_known(finals), 4)),
    )
    groups = grouped(rows, lambda row: (row["variant"], row["parameter"]))
    return ResultTable(columns, [row for _, entries in groups for row in _spread(entries)])


def _files(snapshot: Snapshot, rows: Rows) -> Mapping[str, str]:
    tables = {f"scalars-{file_name(variant)}.tex": text for variant, text in latex(rows).items()}
    return {"scalars.csv": ResultTable.of(long_scalars(rows)).csv(), **tables}


class ScalarsSection(Section):
    """Learned scalars of all models, or of one."""

    order = 90
    absence = "weights"
    pages = ("scalars", MODEL_PAGE)
    study_files = (verdicts.NAME,)
    run_files = (scalar_record.NAME,)
    figures = (
        Figure(
            name="scalars",
            caption="Learned scalars, with what weight decay alone would have left.",
            rows=scalar_rows,
            numbers=("finals",),
            draw=figure,
            table=_figure_table,
            files=_files,
        ),
    )

    def is_measured(self, snapshot: Snapshot, variant: str | None) -> bool:
        return has_families(snapshot, snapshot.variants if variant is None else (variant,))

    def values(self, snapshot: Snapshot, view: View) -> Mapping[str, Any]:
        names = snapshot.variants if view.variant is None else (view.variant,)
        verdicts_found = explained(snapshot)
        t = phrases(view.language)
        shown: list[tuple[ScalarFamily, list[str], Sequence[ScalarEntry]]] = []
        left_out: list[str] = []
        for name in names:
            if len(shown) < _MOST_FAMILIES:
                own = families(snapshot, [name])
                counted = over_seeds(own, _directions(verdicts_found, name, own))
                shown += [
                    (family, sentences(of, t), _spread(family.entries)) for family, of in zip(own, counted, strict=True)
                ]
            else:
                left_out.append(name)
        return {
            "families": shown,
            "left_out": left_out,
            "explained": verdicts_found,
            "most_icons": _MOST_ICONS,
            "one_model": view.variant is not None,
            "command": study_command("explain", snapshot),
        }


def _directions(verdicts: Explained | None, variant: str, own: Sequence[ScalarFamily]) -> list[dict[str, float]]:
    return (
        verdicts.directions_of(variant, [entry.name for family in own for entry in family.entries]) if verdicts else []
    )
