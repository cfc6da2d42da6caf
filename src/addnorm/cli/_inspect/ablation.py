"""`addnorm inspect --ablate` as a table."""

import textwrap
from collections.abc import Mapping
from typing import Any

from addnorm.cli._text import on_screen
from addnorm.reporting.formats.table import Column, ResultTable, dashed

_LEGEND = (
    "Change of held-out loss, nats per token, when all numbers of a group are set to the value with which the mechanism equals "
    "the plain one (neutral), or back to the start where it declares none. Intervals: 95 % over seeds, each for itself. An "
    "interval around 0 says that this group alone does nothing that can be seen here."
)


def ablation_table(measured: Mapping[str, Any], width: int) -> str:
    """Format the result of `addnorm.ablate`."""
    rows = measured["over_seeds"]
    columns = (
        *(Column(name, name.replace("_", " "), side="l") for name in ("variant", "group", "set_to")),
        Column("mean", "change", dashed("+.4f")),
        Column("low", form=dashed("+.4f")),
        Column("high", form=dashed("+.4f")),
        Column("seeds"),
    )
    without = sorted({run["variant"] for run in measured["runs"] if not run["groups"]})
    parts = [on_screen(ResultTable(columns, rows))] if rows else []
    if without:
        parts.append(textwrap.fill(f"Without learned coefficients: {', '.join(without)}.", width))
    parts += [f"skipped {name}: {reason}" for name, reason in measured["skipped"].items()]
    return "\n\n".join([*parts, *([textwrap.fill(_LEGEND, width)] if rows else [])])
