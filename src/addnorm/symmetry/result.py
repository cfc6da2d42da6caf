"""`Symmetries`: how many directions of a model's parameters change nothing, and why."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from addnorm.errors import InputError, UnknownName

if TYPE_CHECKING:
    from addnorm.symmetry.subject import Subject


@dataclass(frozen=True, kw_only=True)
class Member:
    """Directions of a family that move the same parameters."""

    parameters: tuple[str, ...]
    size: int


@dataclass(frozen=True, kw_only=True)
class Family:
    """Directions of one kind, such as the basis of queries and keys."""

    name: str
    size: int
    """Number of independent directions, without those that an earlier family has."""
    members: tuple[Member, ...]
    """The directions by the parameters that they move."""


@dataclass(frozen=True, kw_only=True)
class Unexplained:
    """Directions that the numerical method found and no family has."""

    parameters: tuple[str, ...]
    """The smallest set found of parameters that these directions move."""
    size: int


@dataclass(frozen=True, kw_only=True)
class Near:
    """A direction that only a small constant, such as a norm's eps, makes effective."""

    family: str
    parameters: tuple[str, ...]
    singular_value: float
    """Its effect on the outputs, relative to the largest singular value of the scaled Jacobian."""


@dataclass(frozen=True, kw_only=True)
class Symmetries:
    """The directions of all parameters that leave all outputs unchanged: which of a model's numbers can matter.

    Example:
        >>> import torch
        >>> spec = addnorm.preset("llama", vocab=11, width=4, depth=1, heads=1, kv_heads=1, hidden=3, max_seq=9)
        >>> found = addnorm.symmetries(spec.build(seed=0).eval(), torch.arange(18).reshape(2, 9) % 11)
        >>> isinstance(found, Symmetries), found.redundant, found.explained
        (True, 41, 41)
    """

    model: str
    """Class of the model."""
    training: bool
    """True if training mode was analysed."""
    parameters: int
    """Number of floating-point numbers among the parameters."""
    unread: int
    """Numbers of them on which no output depends at any tested input, such as rows of tables that no input reads. They are
    counted neither as redundant nor as effective."""
    redundant: int
    """Number of independent directions that change nothing, among the numbers that are read."""
    families: tuple[Family, ...]
    unexplained: tuple[Unexplained, ...]
    gap: float
    """Ratio of the smallest singular value that is not zero to the largest that is."""
    near: tuple[Near, ...] = ()
    refuted: tuple[str, ...] = ()
    """Claims of the structural method that moved the output, which are not counted: each is a defect of a rule."""
    notes: tuple[str, ...] = ()
    """Sentences about the scope of the methods."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock time of each method."""
    subject: "Subject | None" = field(default=None, repr=False, compare=False)
    """The model and both methods' directions; not part of the JSON."""

    @property
    def explained(self) -> int:
        """Number of directions that the families have."""
        return sum(each.size for each in self.families)

    @property
    def effective(self) -> int:
        """Number of independent directions that change the outputs."""
        return self.parameters - self.unread - self.redundant

    def family(self, name: str) -> Family:
        """Return a family.

        Raises:
            UnknownName: the model has none of this name.
        """
        for each in self.families:
            if each.name == name:
                return each
        raise UnknownName("family", name, [each.name for each in self.families])

    def effective_of(self, names: Sequence[str]) -> int:
        """Return how many directions of some parameters can matter when all others may be chosen to fit.

        Example:
            >>> import torch
            >>> sizes = {"vocab": 11, "width": 4, "depth": 1, "heads": 1, "kv_heads": 1, "hidden": 3, "max_seq": 9}
            >>> model = addnorm.preset("llama", **sizes, residual="rezero").build(seed=0).eval()
            >>> found = addnorm.symmetries(model, torch.arange(18).reshape(2, 9) % 11)
            >>> found.effective_of([name for name, _ in model.named_parameters() if "residual" in name])
            0

        Raises:
            UnknownName: the model has no such parameter.
            InputError: the result does not hold its model.
        """
        return self._subject().effective_of(names)

    def move(self, family: str, index: int = 0, amount: float = 0.5) -> tuple[nn.Module, float]:
        """Return a copy of the model in float64 that is moved along one direction of a family, and the largest difference
        of its outputs, relative to their root mean square, at inputs and lengths that the analysis did not use.

        The direction is proven anew at the model's own weights, and the move is exact up to rounding.

        Example:
            >>> import torch
            >>> spec = addnorm.preset("llama", vocab=11, width=4, depth=1, heads=1, kv_heads=1, hidden=3, max_seq=9)
            >>> found = addnorm.symmetries(spec.build(seed=0).eval(), torch.arange(18).reshape(2, 9) % 11)
            >>> moved, difference = found.move("basis of values", 3)
            >>> difference < 1e-9
            True

        Args:
            family: name of a family.
            index: which of its directions.
            amount: length of the move; 1 is an action whose largest entry is 1.

        Raises:
            UnknownName: the model has no such family at its own weights.
            InputError: the family has fewer directions, the result does not hold its model, or the outputs differ by more
                than rounding, which is a defect.
        """
        return self._subject().move(family, index, amount)

    def _subject(self) -> "Subject":
        if self.subject is None:
            raise InputError("expected a result that holds its model, got one read from JSON. Analyse the model again.")
        return self.subject

    def to_json(self) -> dict[str, Any]:
        """Return the content of `addnorm audit --all --json`."""
        return {
            "model": self.model,
            "training": self.training,
            "parameters": self.parameters,
            "unread": self.unread,
            "redundant": self.redundant,
            "effective": self.effective,
            "families": [asdict(each) for each in self.families],
            "unexplained": [asdict(each) for each in self.unexplained],
            "gap": self.gap if self.gap < float("inf") else None,
            "near": [asdict(each) for each in self.near],
            "refuted": list(self.refuted),
            "notes": list(self.notes),
            "seconds": dict(self.seconds),
        }

    def __repr__(self) -> str:
        left = sum(each.size for each in self.unexplained)
        return (
            f"<Symmetries of {self.model}: {self.redundant} of {self.parameters} directions change nothing, "
            f"{self.explained} explained" + (f", {left} unexplained" if left else "") + ">"
        )
