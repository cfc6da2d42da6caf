"""A ranking as LaTeX tables, from its JSON: losses, and the differences to each reference."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.formats.latex import NONE, escaped, number, tabular
from addnorm.reporting.formats.measured import Shown, missing_verdicts
from addnorm.reporting.formats.names import file_name
from addnorm.statistics.ranking import RESOLVABLE_SEEDS


def latex(ranking: Mapping[str, Any]) -> dict[str, str]:
    r"""Tables of losses and accuracies, and of the differences to each reference, names escaped; by file name.

    What holds for a whole table (intervals, warnings) is a comment above it, for its caption.
    """
    tables = {"ranking.tex": _loss_table(ranking)}
    for reference in ranking["references"]:
        tables[f"ranking-{file_name(reference)}.tex"] = _difference_table(ranking, reference)
    return tables


def _loss_table(ranking: Mapping[str, Any]) -> str:
    shown = Shown.of(ranking)
    lines = []
    for entry in ranking["variants"]:
        ranks, mean, interval, accuracy = (entry[name] for name in ("rank_interval", "mean", "interval", "accuracy"))
        loss = NONE if mean is None else f"${shown.level(mean)}$"
        if mean is not None and interval is not None:
            loss = rf"${shown.level(mean)} \pm {shown.level((interval[1] - interval[0]) / 2)}$"
        lines.append(
            [
                escaped(entry["variant"]),
                NONE if ranks is None else "--".join(map(str, dict.fromkeys(ranks))),
                str(entry["seeds"]),
                loss,
                number(None if accuracy is None else 100 * accuracy, 2),
            ]
        )
    about = f"The interval of a mean is for that mean alone, {100 * ranking['confidence']:g} %."
    head = ["variant", "ranks", "seeds", escaped(ranking["metric"]), r"acc.\,\%"]
    return tabular("lrrrr", head, lines, [*ranking["warnings"], *missing_verdicts(ranking), about])


def _difference_table(ranking: Mapping[str, Any], reference: str) -> str:
    shown = Shown.of(ranking)
    lines = []
    for entry in ranking["variants"]:
        comparison = entry["versus"].get(reference)
        if comparison is None:
            continue
        interval, difference = comparison["interval"], comparison["difference"]
        lines.append(
            [
                escaped(entry["variant"]),
                NONE if difference is None else f"${shown.difference(difference)}$",
                NONE if interval is None else f"$[{', '.join(map(shown.difference, interval))}]$",
                comparison["verdict"] or "no verdict",
                _needed(comparison["seeds_needed"]),
            ]
        )
    about = (
        f"{shown.name} minus that of {reference}, in {shown.small_unit}; intervals hold together at "
        f"{100 * ranking['confidence']:g} %; margin {ranking['margin']:g}{' nats' if shown.in_nats else ''}. "
        "Seeds: for a verdict."
    )
    return tabular(
        "lrrlr",
        ["variant", "difference", "interval", "verdict", "seeds"],
        lines,
        [*ranking["warnings"], *missing_verdicts(ranking), about],
    )


def _needed(seeds: int | None) -> str:
    return "" if seeds is None else f"$>{RESOLVABLE_SEEDS}$" if seeds > RESOLVABLE_SEEDS else str(seeds)
