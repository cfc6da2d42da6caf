"""One learned number after training, and the verdict on it.

undriven              no gradient above rounding reached it: only weight decay can have moved it
redundant direction   it belongs to a combination along which no gradient pointed: its single value means nothing
learned, decayed      the gradient, or weight decay, made the larger part of its move
"""

from dataclasses import dataclass
from typing import Literal

ScalarVerdict = Literal["learned", "decayed", "undriven", "redundant direction"]


@dataclass(frozen=True, kw_only=True)
class LearnedScalar:
    """One learned number after training, or at the newest checkpoint."""

    parameter: str
    layer: int | None
    """0-based; None for a number that belongs to no layer."""
    index: tuple[int, ...]
    """Index within the parameter."""
    effective: float
    """Coefficient that the model computes from it: s_{m,i} for scores, the share for softmax weights."""
    init: float
    final: float
    decay_only: float
    """Value that weight decay alone would have left of `init`."""
    decay_move: float | None
    """Part of final - init that weight decay made; None where only the end value is known."""
    gradient_move: float | None
    """Part of final - init that the gradient made; None where only the end value is known."""
    snr: float | None
    """Mean gradient over its standard error across steps; None before the second step or without any gradient."""
    driven: bool
    """True if a gradient above rounding reached it."""

    @property
    def name(self) -> str:
        """Parameter and index, such as `scores.log_a.3[1]`."""
        return f"{self.parameter}[{', '.join(map(str, self.index))}]"

    @property
    def decay_share(self) -> float | None:
        """|decay's part| / (|decay's part| + |gradient's part|); None if nothing moved it or the parts are unknown."""
        if self.decay_move is None or self.gradient_move is None:
            return None
        whole = abs(self.decay_move) + abs(self.gradient_move)
        return abs(self.decay_move) / whole if whole > 0 else None


def verdict(scalar: LearnedScalar, *, redundant: bool) -> ScalarVerdict:
    """Judge one scalar.

    Args:
        scalar: the learned number.
        redundant: true if it takes part in a redundant direction.
    """
    # First, because decay moves it all the same: judged by shares, a scalar without any gradient would be "decayed", as
    # if a gradient had lost.
    if not scalar.driven:
        return "undriven"
    if redundant:
        return "redundant direction"
    if scalar.decay_move is None:
        # Only the end value is known: compare the decay's expected move with the distance from there to the end.
        by_decay = abs(scalar.decay_only - scalar.init)
        by_gradient = abs(scalar.final - scalar.decay_only)
        return "decayed" if by_decay > by_gradient else "learned"
    share = scalar.decay_share
    return "decayed" if share is not None and share > 0.5 else "learned"
