"""LaTeX tables with booktabs rules: what the tables of a paper have in common."""

from collections.abc import Sequence

NONE = "--"


def tabular(form: str, head: Sequence[str], lines: Sequence[Sequence[str]], comments: Sequence[str] = ()) -> str:
    r"""A `tabular` with booktabs rules (`\usepackage{booktabs}`), comments above it.

    Args:
        form: one letter per column, `l` or `r`.
        head: titles of the columns, ready for LaTeX.
        lines: cells, ready for LaTeX.
        comments: said above the table, for whoever opens the file.
    """
    return "\n".join(
        [
            *(f"% {' '.join(comment.split())}" for comment in comments),
            rf"\begin{{tabular}}{{{form}}}",
            r"\toprule",
            " & ".join(head) + r" \\",
            r"\midrule",
            *(" & ".join(line) + r" \\" for line in lines),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    ) + "\n"  # fmt: skip


def escaped(name: str) -> str:
    """Text in which nothing is a command."""
    replaced = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(replaced.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in name)


def number(value: float | None, digits: int) -> str:
    """In math mode, where a minus is a minus and not a hyphen; a dash where there is none."""
    return NONE if value is None else f"${value:.{digits}f}$"
