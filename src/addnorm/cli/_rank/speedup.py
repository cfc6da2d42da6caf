"""Text of `addnorm rank --as speedup` and `--as steps`: the factor with its interval, in words and as a table."""

from collections.abc import Mapping
from textwrap import fill
from typing import Any

from addnorm.reporting.formats.table import Column, ResultTable, dashed


def text(content: Mapping[str, Any], width: int) -> str:
    """The answers in words and as a table.

    Args:
        content: `Worths.to_json()`.
        width: columns of the page.
    """
    rows, of = content["variants"], content["of"]
    together = "" if len(rows) == 1 else f", all {len(rows)} together"
    lines = [
        fill(
            f"{row['variant']}: its {of} {'is' if of == 'compute' else 'are'} worth × {row['worth']:.3g}"
            f"{_ends(row['interval'], ' ')} of that of {content['reference']}: {row['verdict']}.",
            width,
        )
        for row in rows
    ]
    lines += [fill(f"Intervals: {100 * content['confidence']:g} %{together}.", width), ""]
    columns = [
        Column("variant", side="l"),
        Column("worth", "worth ×", form=lambda value: f"{value:.3f}"),
        Column("interval", form=dashed(_ends)),
    ]
    if of == "steps":
        columns += [
            Column("loss", "equal loss", form=lambda value: f"{value:.4f}"),
            Column("steps", form=lambda value: f"{value:.0f}"),
            Column("reference_steps", f"steps of {content['reference']}", form=lambda value: f"{value:.0f}"),
        ]
    else:
        shared = len(rows[0]["by_size"])
        if all(len(row["by_size"]) == shared for row in rows) and shared == len(content["sizes"]):
            columns += [_at(place, size) for place, size in enumerate(content["sizes"])]
        columns.append(Column("law", f"loss of {content['reference']}", form=dashed(_law), side="l"))
    lines.append(ResultTable(columns, rows).text(width).rstrip("\n"))
    lines += [""] if content["warnings"] else []
    lines += [fill(f"! {warning}", width, subsequent_indent="  ") for warning in content["warnings"]]
    return "\n".join(lines)


def _at(place: int, size: str) -> Column:
    return Column(f"at {size}", value=lambda row: row["by_size"][place], form=dashed(".3f"))


def _ends(interval: tuple[float, float] | None, before: str = "") -> str:
    return "" if interval is None else f"{before}[{interval[0]:.3f}, {interval[1]:.3f}]"


def _law(law: Mapping[str, float]) -> str:
    return f"{law['limit']:.3g} + {law['coefficient']:.4g} C^-{law['exponent']:.3g}"
