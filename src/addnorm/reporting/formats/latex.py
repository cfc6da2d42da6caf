"""Names and numbers in LaTeX."""

import math

NONE = "--"


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
