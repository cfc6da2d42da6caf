"""What each variant costs, as a LaTeX table (booktabs)."""

from collections.abc import Mapping, Sequence
from typing import Any

from addnorm.report.tables.ranking import escaped

_COLUMNS = (
    ("parameters", "parameters, M", 1e6),
    ("flops_per_token", "MFLOPs / token", 1e6),
    ("tokens_per_s", "tokens / s", 1.0),
    ("peak_bytes", "peak memory, GB", 1e9),
    ("wall_s", "time, s", 1.0),
)


def latex(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per variant, three significant digits; a dash where a number is not known."""
    head = " & ".join(["variant", *(title for _, title, _ in _COLUMNS)])
    lines = [
        " & ".join([escaped(row["variant"]), *(_cell(row.get(key), unit) for key, _, unit in _COLUMNS)]) + r" \\"
        for row in rows
    ]
    form = "l" + "r" * len(_COLUMNS)
    return "\n".join(
        [rf"\begin{{tabular}}{{{form}}}", r"\toprule", head + r" \\", r"\midrule", *lines, r"\bottomrule", r"\end{tabular}"]
    ) + "\n"  # fmt: skip


def _cell(value: float | int | None, unit: float) -> str:
    return "--" if value is None else f"{value / unit:.3g}"
