"""Differences against size as a table: plain text for a terminal, CSV for a spreadsheet.

Functions take the JSON of `addnorm trend --json`. In text, differences are in thousandths of a nat per token.
"""

import textwrap
from collections.abc import Mapping
from typing import Any

from addnorm.reporting.formats.measured import comparison_text, missing_verdicts, thousandths
from addnorm.reporting.formats.table import Column, ResultTable, at, dashed
from addnorm.reporting.formats.text_table import warned


def text(trend: Mapping[str, Any], width: int = 100) -> str:
    """The table for a terminal, without colour: a block per reference."""
    percent = f"{100 * trend['confidence']:g}"
    margin = f"{1000 * trend['margin']:g}"
    parts = []
    for reference in trend["references"]:
        about = (
            f"Loss minus that of {reference}, in thousandths of a nat per token, by the parameters of "
            f"{trend['references'][0]}, and its change per doubling. All changes together hold with {percent} % confidence; "
            f"margin ±{margin}; 4/5: lower on 4 of 5 seeds:"
        )
        sizes = [
            Column(
                f"{size['parameters']:,.0f}", form=dashed(thousandths), value=at("versus", reference, "means", place)
            )
            for place, size in enumerate(trend["sizes"])
        ]
        slope = Column("change per doubling", form=change, side="l", value=at("versus", reference))
        rows = [row for row in trend["variants"] if reference in row["versus"]]
        parts += [textwrap.fill(about, width), ResultTable([Column("variant", side="l"), *sizes, slope], rows).text()]
    if trend.get("decisions"):
        shares = [Column("decision", side="l"), *map(Column, ("pairs kept", "share", "95 % interval", "chance"))]
        parameters = {size["name"]: f"{size['parameters']:,.0f}" for size in trend["sizes"]}
        rows = [_decision(each, parameters) for each in trend["decisions"]]
        about = "Decision accuracy: pairs of variants whose order at one size is that at the next, and what chance would keep:"
        parts += [textwrap.fill(about, width), ResultTable(shares, rows).text()]
    changes = [
        {"variant": row["variant"], "versus": {name: versus["change"] for name, versus in row["versus"].items()}}
        for row in trend["variants"]
    ]
    parts += warned([*trend["warnings"], *missing_verdicts({"variants": changes})], width)
    return "\n\n".join(parts) + "\n"


def _decision(of: Mapping[str, Any], parameters: Mapping[str, str]) -> dict[str, str]:
    low, high = ("-", "-") if of["interval"] is None else (f"{end:.2f}" for end in of["interval"])
    return {
        "decision": f"{parameters[of['smaller']]} to {parameters[of['larger']]}",
        "pairs kept": f"{of['kept']} of {of['pairs']}",
        "share": f"{of['share']:.2f}",
        "95 % interval": "-" if of["interval"] is None else f"[{low}, {high}]",
        "chance": "{:.2f} to {:.2f}".format(*of["chance"]),
    }


def change(versus: Mapping[str, Any]) -> str:
    """`falls 5/5 -9.5 [-15.0, -4.0]`: direction, seeds at which it falls, change per doubling and its interval."""
    comparison = versus["change"]
    return comparison_text(comparison, thousandths, word=versus["direction"], better=comparison.get("seeds_lower"))


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
