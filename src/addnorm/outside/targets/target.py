"""The common result of all kinds of targets."""

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

Kind = Literal["function", "run", "transformers class", "checkpoint", "stripped file"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A model with example inputs."""

    name: str
    """As given by the user."""
    model: nn.Module
    """In evaluation mode; the model of a function is left as the function returned it."""
    inputs: Any
    """One tensor, a tuple of positional or a dict of keyword inputs."""
    kind: Kind
    notes: tuple[str, ...] = ()
    """One sentence per decision: how inputs were made, where weights came from."""
    shrunk: str = ""
    """Description of the reduced configuration, such as "2 layers", if the requested model does not fit into memory; else
    empty."""

    whole: int = 0
    """Number of parameters of the requested model if this one is reduced, else 0."""

    def to_json(self) -> dict[str, Any]:
        """The target's description as plain values."""
        return {"name": self.name, "kind": self.kind, "shrunk": self.shrunk, "notes": list(self.notes)}
