"""Text about the keys of a cache, before and after the canonical form."""

from collections.abc import Mapping, Sequence
from typing import Any

_COLUMNS = ("largest", "center", "spread", "int8", "int4")


def text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the attention calls, with each number before and after."""
    lines = [
        "Keys of each attention call: own biases -> canonical form. center: a channel's mean over the tokens, at its largest;",
        "spread: distances from that mean; int8, int4: error of a quantised cache relative to the spread.",
        "call  " + "  ".join(f"{name:>17}" for name in _COLUMNS),
    ]
    for at, row in enumerate(rows):
        cells = (f"{row['before'][name]:.3g} -> {row['after'][name]:.3g}" for name in _COLUMNS)
        lines.append(f"{at:>4}  " + "  ".join(f"{cell:>17}" for cell in cells))
    return "\n".join(lines) + "\n"
