"""What each variant costs, as a LaTeX table (booktabs)."""

from collections.abc import Mapping, Sequence
from typing import Any

from addnorm.reporting.tables.latex import NONE, escaped, tabular

_COLUMNS = (
    ("parameters", "parameters, M", 1e6),
    ("flops_per_token", "MFLOPs / token", 1e6),
    ("tokens_per_s", "tokens / s", 1.0),
    ("peak_bytes", "peak memory, GB", 1e9),
    ("wall_s", "time, s", 1.0),
)


def latex(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per variant, three significant digits; a dash where a number is not known."""
    head = ["variant", *(title for _, title, _ in _COLUMNS)]
    lines = [[escaped(row["variant"]), *(_cell(row.get(key), unit) for key, _, unit in _COLUMNS)] for row in rows]
    return tabular("l" + "r" * len(_COLUMNS), head, lines)


def _cell(value: float | int | None, unit: float) -> str:
    return NONE if value is None else f"{value / unit:.3g}"
