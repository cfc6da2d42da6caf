"""The actions of one direction, and the roles of what they act on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Signature:
    """The roles of the spaces on which a direction acts."""

    linear: frozenset[str]
    """Roles of spaces with a linear action."""
    shifted: frozenset[str]
    """Roles of spaces with a shift."""
    free: bool
    """True if a weight makes a free shift, or reads along a null form of its input."""
    unseen: bool
    """True if a weight reads along a form that vanishes because its input is an image of fewer numbers."""
    unread: bool
    """True if a weight writes along a direction that no reader reads."""
    factors: bool
    """True if it moves a weight that multiplies another value than that of a norm."""
