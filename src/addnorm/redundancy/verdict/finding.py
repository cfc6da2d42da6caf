"""The result for one parameter: verdict, redundant directions, folds, and the operations that block it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, cast, get_args

import torch
from jaxtyping import Float64
from torch import Tensor

Verdict = Literal["redundant", "partly redundant", "foldable", "effective", "negligible", "unproved", "undecided"]
"""
- redundant: no value of the parameter, moved alone, changes the observed output.
- partly redundant: some of its directions, moved alone, change nothing; `redundant_dof` counts them.
- foldable: moved alone it changes the output, but other parameters can absorb all or part of it; `absorbable_dof`
  counts how much.
- effective: it changes the output, and no other tracked parameter can absorb any of it.
- negligible: it changes the output in exact arithmetic, by less than float32 resolves at the lengths tested.
- unproved: at the inputs tested more of it is free than the static method proves; its counts are the proved ones, and
  `numeric_redundant_dof` and `numeric_absorbable_dof` the others.
- undecided: moves refute the static method's claim (`contradicted`), or neither method could decide: no tested input shows
  an effect, or float64 is too coarse.
"""

VERDICTS: tuple[str, ...] = get_args(Verdict)


def as_json(value: Any) -> Any:
    """Convert a field of a result to plain data."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    return dict(value) if isinstance(value, dict) else value


class InJson:
    """A dataclass with a form in `addnorm audit --json`."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields in their order, which is that of the keys in the JSON files and so never changes."""
        return {each.name: as_json(getattr(self, each.name)) for each in fields(cast(Any, self))}


@dataclass(frozen=True, kw_only=True)
class Directions:
    """A subspace of one parameter's flattened entries, by name if it has one, otherwise by a basis."""

    kind: Literal["none", "coordinates", "all-ones", "basis"]
    coordinates: tuple[int, ...] = ()
    """The free entries, if `kind` is `coordinates`."""
    basis: Float64[Tensor, "direction entry"] | None = None
    """Orthonormal rows, if `kind` is `basis`."""

    def to_json(self) -> dict[str, Any]:
        """Return its form in `addnorm audit --json`."""
        if self.kind == "coordinates":
            return {"kind": self.kind, "coordinates": list(self.coordinates)}
        if self.basis is not None:
            return {"kind": self.kind, "basis": self.basis.tolist()}
        return {"kind": self.kind}


def directions(basis: Float64[Tensor, "direction entry"]) -> Directions:
    """Describe the row space of a matrix: single coordinates, the all-ones direction, or an orthonormal basis."""
    if basis.shape[0] == 0:
        return Directions(kind="none")
    # The description must not depend on the basis: the projection's diagonal is the same for every one, and is 0 or 1
    # for single coordinates.
    rows = torch.linalg.qr(basis.T)[0].T
    sharp = rows.shape[1] * torch.finfo(torch.float64).eps * 2**10
    onto = rows.square().sum(0)
    if bool(((onto < sharp) | ((onto - 1).abs() < sharp)).all()):
        return Directions(kind="coordinates", coordinates=tuple(torch.nonzero(onto > 0.5).flatten().tolist()))
    ones = torch.ones(rows.shape[1], dtype=torch.float64) / rows.shape[1] ** 0.5
    if rows.shape[0] == 1 and float((rows[0] @ ones).abs()) > 1 - sharp:
        return Directions(kind="all-ones")
    return Directions(kind="basis", basis=rows)


def idle_part(free: Directions, value: Tensor) -> Float64[Tensor, " entry"] | None:
    """Return the part of a parameter's numbers that lies in some directions; None for a basis, which is that of generic
    weights, not of the present ones."""
    flat = value.detach().reshape(-1).to("cpu", torch.float64)
    part = torch.zeros_like(flat)
    match free.kind:
        case "coordinates":
            part[list(free.coordinates)] = flat[list(free.coordinates)]
        case "all-ones":
            part += flat.mean()
        case "basis" if bool(flat.any()):
            return None
    return part


def idle_norm(free: Directions, value: Tensor) -> float | None:
    """Return the norm of `idle_part`."""
    part = idle_part(free, value)
    return None if part is None else float(torch.linalg.vector_norm(part))


@dataclass(frozen=True, kw_only=True)
class Fold(InJson):
    """A parameter that absorbs what is removed from another one."""

    into: str
    """The parameter that changes."""
    formula: str
    """The change added to it."""
    amplification: float
    """Largest change of an entry divided by the largest entry removed; above 1 the fold increases magnitudes."""
    solved: bool = False
    """True if no single weight gives the change, which then solves a system of equations, for example with a weight's
    inverse."""


@dataclass(frozen=True, kw_only=True)
class Blocked(InJson):
    """An operation whose demand removes some directions of this parameter from the null space."""

    op: str
    """Name of the operation in torch."""
    module: str
    """Path of the module that calls it."""
    where: str
    """Source line of the call, `file:line`; empty if unknown."""
    rank: int
    """Number of directions of the parameter that it blocks."""
    why: str = ""
    """The demand: `unchanged` or `constant along axis N`."""


@dataclass(frozen=True, kw_only=True)
class Finding(InJson):
    """The result for one parameter."""

    parameter: str
    verdict: Verdict
    size: int
    """Number of entries."""
    redundant_dof: int
    """Number of its directions that, moved alone, change nothing."""
    absorbable_dof: int
    """Number of its directions that other parameters can compensate; never below `redundant_dof`."""
    directions: Directions
    """The redundant directions."""
    fold_into: tuple[Fold, ...] = ()
    """The parameters that absorb it, if others must move."""
    blocked_by: tuple[Blocked, ...] = ()
    reason: str
    """One sentence."""
    effect: float | None = None
    """Relative change of the output per unit move along the weakest direction that is not redundant, if measured."""
    negligible_dof: int = 0
    """Number of directions whose effect is above float64 rounding but below float32 resolution."""
    norm: float | None = None
    """Euclidean norm of its present numbers."""
    largest: float | None = None
    """Largest absolute value of its present numbers."""
    idle_norm: float | None = None
    """Norm of the part of them that lies in its redundant directions, so that it cannot matter; None if these depend on the
    weights."""
    unread: int = 0
    """Number of entries of which no tested input shows an effect, so that the numerical method says nothing about them."""
    contradicted: bool = False
    """True if moves refute what the static method claims about it."""
    numeric_redundant_dof: int | None = None
    """`redundant_dof` according to the numerical method; None if it did not count."""
    numeric_absorbable_dof: int | None = None
    """`absorbable_dof` according to the numerical method; None if it did not count."""


def verdict_of(size: int, redundant: int, absorbable: int, negligible: int) -> Verdict:
    """Return the verdict for counts that are not disputed."""
    if size and redundant == size:
        return "redundant"
    if redundant + negligible == size and negligible:
        return "negligible"
    if redundant:
        return "partly redundant"
    return "foldable" if absorbable else "effective"


def by_name(findings: Sequence[Finding]) -> dict[str, Finding]:
    """Index findings by parameter."""
    return {finding.parameter: finding for finding in findings}
