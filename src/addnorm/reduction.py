"""Facts that prove a mechanism: in which settings, and with which parameters, it equals another one.

A sibling declares them in `reduces_to`; one test holds all of them in float64, with every other parameter at random.

Example: ReZero with all scalars at one is the plain residual

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(parameters={"alpha": 1.0}, to={"residual": "add"}),)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Reducible", "Reduction"]

Values = float | tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """A model with the sibling computes what a model without it computes.

    Example::

        Reduction(settings={"mixing": "free"}, parameters="start", to={"residual": "add"})
        Reduction(parameters={"query": 0.0}, to={"residual": "add"}, equal="after the next norm")
    """

    to: Mapping[str, Any]
    """Fields of the model that computes the same, as `addnorm.preset` takes them."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the sibling."""
    parameters: Mapping[str, Values | Literal["start"]] | Literal["start"] = "start"
    """Values of the sibling's own parameters and buffers, by the last part of their names: one number, numbers for the last
    axis, or "start" for those at the start; those that are not named are arbitrary. "start" for all of them."""
    theirs: Mapping[str, Values] = field(default_factory=dict)
    """Values of the other sibling's own parameters, where they differ in name or shape; all others are shared by name."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Fields that both models have."""
    equal: Literal["exactly", "after the next norm"] = "exactly"
    """"after the next norm": up to a factor of the stream, which the norm that reads it takes out, while its eps is far below
    the stream's mean square."""


class Reducible:
    """Base of the specifications that say what they equal."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...] | None:
        """The settings and parameters with which it equals another sibling; () if there are none, None if nobody has said."""
        return None
