r"""LaTeX tables with booktabs rules, as wide as a column of a two-column paper at most.

At `\small` with short names they fit into 241 pt; a test compiles and measures them. What would not fit becomes several tables.
"""

import math
from collections.abc import Sequence

NONE = "--"


def tabular(form: str, head: Sequence[str], lines: Sequence[Sequence[str]], comments: Sequence[str] = ()) -> str:
    r"""A `tabular` with booktabs rules (`\usepackage{booktabs}`), comments above it.

    Args:
        form: one letter per column, `l` or `r`.
        head: titles of the columns, ready for LaTeX.
        lines: cells, ready for LaTeX.
        comments: LaTeX comments above the table.
    """
    return "\n".join(
        [
            *(f"% {' '.join(comment.split())}" for comment in comments),
            r"{\setlength{\tabcolsep}{4pt}%",
            rf"\begin{{tabular}}{{{form}}}",
            r"\toprule",
            " & ".join(head) + r" \\",
            r"\midrule",
            *(" & ".join(line) + r" \\" for line in lines),
            r"\bottomrule",
            r"\end{tabular}}",
        ]
    ) + "\n"  # fmt: skip


def escaped(name: str) -> str:
    """Text with LaTeX's special characters escaped."""
    replaced = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(replaced.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in name)


def significant(value: float | int | None, digits: int = 3) -> str:
    r"""Decimal notation with some significant digits, `$16\,900$`, `$0.00123$`; a power of ten only beyond that."""
    if value is None or not math.isfinite(value):
        return NONE
    if value == 0:
        return "$0$"
    if not 1e-4 <= abs(value) < 1e7:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        return rf"${mantissa} \times 10^{{{int(power)}}}$"
    rounded = float(f"{value:.{digits}g}")
    places = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"${rounded:,.{places}f}$".replace(",", r"\,")


def number(value: float | None, digits: int) -> str:
    """In math mode, so that a minus is not a hyphen; a dash for None."""
    return NONE if value is None else f"${value:.{digits}f}$"
