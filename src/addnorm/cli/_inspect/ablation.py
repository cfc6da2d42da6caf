"""`addnorm inspect --ablate` as a table."""

import textwrap
from collections.abc import Mapping
from typing import Any

from addnorm.cli._text import aligned

_LEGEND = (
    "Change of held-out loss, nats per token, when all numbers of a group are set to the value with which the mechanism equals "
    "the plain one (neutral), or back to the start where it declares none. Intervals: 95 % over seeds, each for itself. An "
    "interval around 0 says that this group alone does nothing that can be seen here."
)


def ablation_table(measured: Mapping[str, Any], width: int) -> str:
    """Format the result of `addnorm.ablate`."""
    rows = [("variant", "group", "set to", "change", "low", "high", "seeds")]
    for row in measured["over_seeds"]:
        ends = ("-", "-") if row["low"] is None else (f"{row['low']:+.4f}", f"{row['high']:+.4f}")
        rows.append((row["variant"], row["group"], row["set_to"], f"{row['mean']:+.4f}", *ends, str(row["seeds"])))
    without = sorted({run["variant"] for run in measured["runs"] if not run["groups"]})
    parts = [aligned(rows, right="lllrrrr")] if len(rows) > 1 else []
    if without:
        parts.append(textwrap.fill(f"Without learned coefficients: {', '.join(without)}.", width))
    parts += [f"skipped {name}: {reason}" for name, reason in measured["skipped"].items()]
    return "\n\n".join([*parts, *([textwrap.fill(_LEGEND, width)] if len(rows) > 1 else [])])
