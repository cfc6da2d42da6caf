"""A ranking as LaTeX tables, from its JSON: losses, and the differences to each reference."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.formats.latex import NONE, escaped, number
from addnorm.reporting.formats.measured import RankingFormats, is_unplanned, missing_verdicts
from addnorm.reporting.formats.names import file_name
from addnorm.reporting.formats.table import Column, ResultTable, dashed
from addnorm.statistics.ranking import RESOLVABLE_SEEDS
from addnorm.words import point_name


def latex(ranking: Mapping[str, Any]) -> dict[str, str]:
    r"""Tables of losses and accuracies, and of the differences to each reference, names escaped; by file name.

    What holds for a whole table (intervals, warnings) is a comment above it, for its caption.
    """
    tables = {"ranking.tex": _loss_table(ranking)}
    for reference in ranking["references"]:
        tables[f"ranking-{file_name(reference)}.tex"] = _difference_table(ranking, reference)
    return tables


def _loss_table(ranking: Mapping[str, Any]) -> str:
    shown = RankingFormats.of(ranking)

    def loss(entry: Mapping[str, Any]) -> str:
        mean, ends = entry["mean"], entry["interval"]
        if mean is None:
            return NONE
        reach = "" if ends is None else rf" \pm {shown.level((ends[1] - ends[0]) / 2)}"
        return f"${shown.level(mean)}{reach}$"

    columns = (
        Column("variant", form=lambda name: escaped(point_name(name)), side="l"),
        Column("rank_interval", "ranks", dashed(lambda ranks: "--".join(map(str, dict.fromkeys(ranks))), NONE)),
        Column("seeds"),
        Column("loss", escaped(ranking["metric"]), value=loss),
        Column("accuracy", r"acc.\,\%", dashed(lambda share: number(100 * share, 2), NONE)),
    )
    return ResultTable(columns, ranking["variants"]).latex(
        *ranking["warnings"],
        *missing_verdicts(ranking),
        f"The interval of a mean is for that mean alone, {100 * ranking['confidence']:g} %.",
    )


def _difference_table(ranking: Mapping[str, Any], reference: str) -> str:
    shown, mark = RankingFormats.of(ranking), r"$^\ast$" if is_unplanned(ranking) else ""
    columns = (
        Column("variant", form=lambda name: escaped(point_name(name)), side="l"),
        Column("difference", form=dashed(lambda difference: f"${shown.difference(difference)}$", NONE)),
        Column("interval", form=dashed(lambda ends: f"$[{', '.join(map(shown.difference, ends))}]$", NONE)),
        Column("verdict", form=dashed(lambda verdict: f"{verdict}{mark}", "no verdict"), side="l"),
        *([Column("again", "second batch", _again, side="l")] if ranking.get("second") else []),
        Column("seeds_needed", "seeds", dashed(_needed, "")),
    )
    compared = [(entry, entry["versus"].get(reference)) for entry in ranking["variants"]]
    rows = [{**entry, "again": None, **comparison} for entry, comparison in compared if comparison]
    return ResultTable(columns, rows).latex(
        *ranking["warnings"],
        *missing_verdicts(ranking),
        f"{shown.name} minus that of {point_name(reference)}, in {shown.small_unit}; intervals hold together at "
        f"{100 * ranking['confidence']:g} %; margin {ranking['margin']:g}{' nats' if shown.in_nats else ''}. "
        "Seeds: for a verdict.",
        *(["An asterisk marks verdicts of another family than the planned one."] if mark else []),
    )


def _again(again: Mapping[str, Any] | None) -> str:
    return NONE if again is None else str(again["state"])


def _needed(seeds: int) -> str:
    return f"$>{RESOLVABLE_SEEDS}$" if seeds > RESOLVABLE_SEEDS else str(seeds)
