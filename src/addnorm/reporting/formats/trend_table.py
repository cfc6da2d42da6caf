"""Differences against size as a table: plain text for a terminal, CSV for a spreadsheet.

Functions take the JSON of `addnorm trend --json`. In text, differences are in the units of a ranking.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from addnorm.reporting.formats.measured import RankingFormats, comparison_text, missing_verdicts
from addnorm.reporting.formats.table import Column, ResultTable, at, dashed
from addnorm.reporting.formats.text_table import filled, warned
from addnorm.words import Phrases, spoken, translated


def text(trend: Mapping[str, Any], width: int = 100) -> str:
    """The table for a terminal, without colour and in its language: a block per reference."""
    t = spoken()
    shown = RankingFormats.of(trend, t)
    values = {"percent": f"{100 * trend['confidence']:g}", "name": shown.name, "unit": shown.small_unit}
    values["margin"] = f"{shown.factor * trend['margin']:g}"
    parts, mean, cell = [], dashed(shown.difference), partial(change, shown=shown, t=t)
    for reference in trend["references"]:
        first = trend["references"][0]
        about = t("question.trend.about", reference=reference, first=first, **values)
        sizes = [
            Column(f"{size['parameters']:,.0f}", form=mean, value=at("versus", reference, "means", place))
            for place, size in enumerate(trend["sizes"])
        ]
        slope = Column("slope", t("question.trend.slope"), cell, "l", at("versus", reference))
        rows = [row for row in trend["variants"] if reference in row["versus"]]
        names = Column("variant", t("head.variant"), side="l")
        parts += [filled(about, width), ResultTable([names, *sizes, slope], rows).text()]
    if trend.get("decisions"):
        shares = [
            Column(name, t(f"question.trend.{name}"), side="r" if place else "l")
            for place, name in enumerate(("decision", "kept", "share", "interval", "chance"))
        ]
        parameters = {size["name"]: f"{size['parameters']:,.0f}" for size in trend["sizes"]}
        rows = [_decision(each, parameters, t) for each in trend["decisions"]]
        parts += [filled(t("question.trend.decisions"), width), ResultTable(shares, rows).text()]
    changes = [
        {"variant": row["variant"], "versus": {name: versus["change"] for name, versus in row["versus"].items()}}
        for row in trend["variants"]
    ]
    warnings = [*trend["warnings"], *missing_verdicts({"variants": changes}, t)]
    parts += warned([translated(warning, t) for warning in warnings], width)
    return "\n\n".join(parts) + "\n"


def _decision(of: Mapping[str, Any], parameters: Mapping[str, str], t: Phrases) -> dict[str, str]:
    low, high = ("-", "-") if of["interval"] is None else (f"{end:.2f}" for end in of["interval"])
    return {
        "decision": t("question.trend.from_to", low=parameters[of["smaller"]], high=parameters[of["larger"]]),
        "kept": t("question.trend.of", count=of["kept"], all=of["pairs"]),
        "share": f"{of['share']:.2f}",
        "interval": "-" if of["interval"] is None else f"[{low}, {high}]",
        "chance": t(
            "question.trend.from_to", **dict(zip(("low", "high"), map("{:.2f}".format, of["chance"]), strict=True))
        ),
    }


def change(versus: Mapping[str, Any], shown: RankingFormats, t: Phrases) -> str:
    """`falls 5/5 -9.5 [-15.0, -4.0]`: direction, seeds at which it falls, change per doubling and its interval."""
    comparison = versus["change"]
    word = t(f"question.trend.{versus['direction'] or 'no_verdict'}")
    return comparison_text(comparison, shown.difference, word=word, counted=shown.seeds_better, t=t)


def csv(trend: Mapping[str, Any]) -> str:
    """One line per variant, reference and size, numbers in full precision, an empty cell for None."""
    head = ("variant", "reference", "size", "parameters", "difference", "seeds", "direction", "change", "low", "high")
    rows = []
    for row in trend["variants"]:
        for reference, versus in row["versus"].items():
            slope = versus["change"]
            low, high = slope["interval"] or (None, None)
            for size, mean, by_seed in zip(trend["sizes"], versus["means"], versus["differences"], strict=True):
                line = (row["variant"], reference, size["name"], size["parameters"], mean, len(by_seed))
                rows.append((*line, versus["direction"], slope["difference"], low, high))
    return ResultTable([Column(name, value=at(place)) for place, name in enumerate(head)], rows).csv()
