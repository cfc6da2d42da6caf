"""What is known about one parameter: its verdict, its redundant directions, where it folds to, and what holds it in place."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float64
from torch import Tensor

Verdict = Literal["redundant", "partly redundant", "foldable", "effective", "negligible", "undecided"]
"""
- redundant: no value of it, alone, changes what is observed.
- partly redundant: some directions of it, alone, change nothing; `redundant_dof` counts them.
- foldable: it matters alone, but other parameters can take over all or part of it; `absorbable_dof` counts how much.
- effective: it matters, and nothing else can take over any of it.
- negligible: it matters in exact arithmetic, by less than float32 can show at the lengths looked at.
- undecided: the two methods disagree, or the only one that ran could not tell.
"""

VERDICTS: tuple[str, ...] = get_args(Verdict)


@dataclass(frozen=True, kw_only=True)
class Directions:
    """A subspace of one parameter's entries (flattened): named where it has a short name, else by a basis."""

    kind: Literal["none", "coordinates", "all-ones", "basis"]
    coordinates: tuple[int, ...] = ()
    """The entries that are free, for `coordinates`."""
    basis: Float64[Tensor, "direction entry"] | None = None
    """Orthonormal rows, for `basis`."""

    def to_json(self) -> dict[str, Any]:
        """Its form in `addnorm audit --json`."""
        if self.kind == "coordinates":
            return {"kind": self.kind, "coordinates": list(self.coordinates)}
        if self.basis is not None:
            return {"kind": self.kind, "basis": self.basis.tolist()}
        return {"kind": self.kind}


def directions(basis: Float64[Tensor, "direction entry"]) -> Directions:
    """Name the row space of a matrix: single coordinates, the all-ones direction, or an orthonormal basis."""
    if basis.shape[0] == 0:
        return Directions(kind="none")
    rows = torch.linalg.qr(basis.T)[0].T
    sharp = rows.shape[1] * torch.finfo(torch.float64).eps * 2**10
    onto = rows.square().sum(0)
    if bool(((onto < sharp) | ((onto - 1).abs() < sharp)).all()):
        return Directions(kind="coordinates", coordinates=tuple(torch.nonzero(onto > 0.5).flatten().tolist()))
    ones = torch.ones(rows.shape[1], dtype=torch.float64) / rows.shape[1] ** 0.5
    if rows.shape[0] == 1 and float((rows[0] @ ones).abs()) > 1 - sharp:
        return Directions(kind="all-ones")
    return Directions(kind="basis", basis=rows)


@dataclass(frozen=True, kw_only=True)
class Fold:
    """One parameter that takes over what is removed from another."""

    into: str
    """The parameter that changes."""
    formula: str
    """What is added to it."""
    amplification: float
    """Largest change of an entry over the largest entry removed: above 1, the fold makes numbers larger."""
    solved: bool = False
    """Whether no single weight explains it: a system of equations, as when the fold needs a weight's inverse."""

    def to_json(self) -> dict[str, Any]:
        """Its form in `addnorm audit --json`."""
        return {"into": self.into, "formula": self.formula, "amplification": self.amplification, "solved": self.solved}


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """One operation of the model that must see this parameter unmoved, and so holds some of its directions in place."""

    op: str
    """The operation, as torch names it."""
    module: str
    """Path of the module that runs it."""
    where: str
    """Its line of source, `file:line`; empty where it is not known."""
    rank: int
    """Directions of the parameter that it holds."""
    why: str = ""
    """The rule, in words."""

    def to_json(self) -> dict[str, Any]:
        """Its form in `addnorm audit --json`."""
        return {"op": self.op, "module": self.module, "where": self.where, "rank": self.rank, "why": self.why}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What is known about one parameter."""

    parameter: str
    verdict: Verdict
    size: int
    """Its number of entries."""
    redundant_dof: int
    """Dimension of the space of its values that, alone, change nothing."""
    absorbable_dof: int
    """Dimension of the space of its values that it can lose if others move too; never below `redundant_dof`."""
    directions: Directions
    """The redundant ones; for a foldable parameter, the absorbable ones."""
    reason: str
    """One sentence."""
    fold_into: tuple[Fold, ...] = ()
    """What takes over, where others must move."""
    blocked_by: tuple[Blocked, ...] = ()
    effect: float | None = None
    """Numerical effect, when it was measured: relative change of the output per unit move along the weakest
    direction that is not redundant."""
    negligible_dof: int = 0
    """Directions whose effect is above rounding in float64 but below what float32 can show."""
    numeric_redundant_dof: int | None = None
    """`redundant_dof` as the numerical method counts it; None where it did not count."""
    numeric_absorbable_dof: int | None = None
    """`absorbable_dof` as the numerical method counts it; None where it did not count."""

    def to_json(self) -> dict[str, Any]:
        """Its entry in `addnorm audit --json`."""
        return {
            "parameter": self.parameter,
            "verdict": self.verdict,
            "size": self.size,
            "redundant_dof": self.redundant_dof,
            "absorbable_dof": self.absorbable_dof,
            "directions": self.directions.to_json(),
            "fold_into": [fold.to_json() for fold in self.fold_into],
            "blocked_by": [blocked.to_json() for blocked in self.blocked_by],
            "reason": self.reason,
            "effect": self.effect,
            "negligible_dof": self.negligible_dof,
            "numeric_redundant_dof": self.numeric_redundant_dof,
            "numeric_absorbable_dof": self.numeric_absorbable_dof,
        }


def verdict(size: int, redundant: int, absorbable: int, negligible: int) -> Verdict:
    """The word for counts on which nobody disagrees."""
    if size and redundant == size:
        return "redundant"
    if redundant + negligible == size and negligible:
        return "negligible"
    if redundant:
        return "partly redundant"
    return "foldable" if absorbable else "effective"


def by_name(findings: Sequence[Finding]) -> dict[str, Finding]:
    """The findings by the parameter they are about."""
    return {finding.parameter: finding for finding in findings}
