"""A ranking as LaTeX tables, from its JSON: losses, and the differences to each reference."""

from collections.abc import Mapping
from typing import Any

from addnorm.reporting.formats.latex import NONE, escaped, number, tabular
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
    lines = []
    for entry in ranking["variants"]:
        ranks, mean, interval, accuracy = (entry[name] for name in ("rank_interval", "mean", "interval", "accuracy"))
        loss = number(mean, 4)
        if mean is not None and interval is not None:
            loss = rf"${mean:.4f} \pm {(interval[1] - interval[0]) / 2:.4f}$"
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
    head = ["variant", "ranks", "seeds", "loss", r"acc.\,\%"]
    return tabular("lrrrr", head, lines, [*ranking["warnings"], about])


def _difference_table(ranking: Mapping[str, Any], reference: str) -> str:
    lines = []
    for entry in ranking["variants"]:
        comparison = entry["versus"].get(reference)
        if comparison is None:
            continue
        interval, difference = comparison["interval"], comparison["difference"]
        lines.append(
            [
                escaped(entry["variant"]),
                NONE if difference is None else f"${1000 * difference:+.1f}$",
                NONE if interval is None else f"$[{1000 * interval[0]:+.1f}, {1000 * interval[1]:+.1f}]$",
                comparison["verdict"] or "no verdict",
                _needed(comparison["seeds_needed"]),
            ]
        )
    about = (
        f"Loss minus that of {reference}, in thousandths of a nat; intervals hold together at "
        f"{100 * ranking['confidence']:g} %; margin {ranking['margin']:g} nats. Seeds: for a verdict."
    )
    return tabular(
        "lrrlr", ["variant", "difference", "interval", "verdict", "seeds"], lines, [*ranking["warnings"], about]
    )


def _needed(seeds: int | None) -> str:
    return "" if seeds is None else f"$>{RESOLVABLE_SEEDS}$" if seeds > RESOLVABLE_SEEDS else str(seeds)
