"""Differences against size as a table: plain text for a terminal, CSV for a spreadsheet.

Functions take the JSON of `addnorm trend --json`. In text, differences are in thousandths of a nat per token.
"""

import csv as csv_format
import io
import textwrap
from collections.abc import Mapping
from typing import Any

from addnorm.reporting.formats.measured import missing_verdicts
from addnorm.reporting.formats.text_table import aligned

NONE = "-"


def text(found: Mapping[str, Any], width: int = 100) -> str:
    """The table for a terminal, without colour: a block per reference."""
    percent = f"{100 * found['confidence']:g}"
    margin = f"{1000 * found['margin']:g}"
    parts = []
    for reference in found["references"]:
        about = (
            f"Loss minus that of {reference}, in thousandths of a nat per token, by the parameters of "
            f"{found['references'][0]}, and its change per doubling. All changes together hold with {percent} % confidence; "
            f"margin ±{margin}; 4/5: lower on 4 of 5 seeds:"
        )
        head = ["variant", *(f"{size['parameters']:,.0f}" for size in found["sizes"]), "change per doubling"]
        rows = [
            [row["variant"], *(_thousandths(mean) for mean in versus["means"]), change(versus)]
            for row in found["variants"]
            if (versus := row["versus"].get(reference)) is not None
        ]
        parts += [textwrap.fill(about, width), aligned([head, *rows], left={0, len(head) - 1})]
    changes = [
        {"variant": row["variant"], "versus": {name: versus["change"] for name, versus in row["versus"].items()}}
        for row in found["variants"]
    ]
    warnings = [*found["warnings"], *missing_verdicts({"variants": changes})]
    notes = [textwrap.fill(f"! {note}", width, subsequent_indent="  ") for note in warnings]
    if notes:
        parts.append("\n".join(notes))
    return "\n\n".join(parts) + "\n"


def change(versus: Mapping[str, Any]) -> str:
    """`falls 5/5 -9.5 [-15.0, -4.0]`: direction, seeds at which it falls, change per doubling and its interval."""
    comparison = versus["change"]
    cell = versus["direction"] or comparison["verdict"] or "no verdict"
    if comparison["interval"] is not None and comparison["by_seed"]:
        cell += f" {comparison['seeds_lower']}/{len(comparison['by_seed'])}"
    if comparison["difference"] is not None:
        cell += f" {_thousandths(comparison['difference'])}"
    if comparison["interval"] is not None:
        cell += f" [{', '.join(map(_thousandths, comparison['interval']))}]"
    return cell


def csv(found: Mapping[str, Any]) -> str:
    """One line per variant, reference and size, numbers in full precision, an empty cell for None."""
    out = io.StringIO()
    writer = csv_format.writer(out, lineterminator="\n")
    writer.writerow(
        ["variant", "reference", "size", "parameters", "difference", "seeds", "direction", "change", "low", "high"]
    )
    for row in found["variants"]:
        for reference, versus in row["versus"].items():
            comparison = versus["change"]
            low, high = comparison["interval"] or (None, None)
            for size, mean, by_seed in zip(found["sizes"], versus["means"], versus["differences"], strict=True):
                line = [row["variant"], reference, size["name"], size["parameters"], mean, len(by_seed)]
                writer.writerow([*line, versus["direction"], comparison["difference"], low, high])
    return out.getvalue()


def _thousandths(value: float | None) -> str:
    return NONE if value is None else f"{1000 * value:+.1f}"
