"""The static method's count for a module of the grammar, against the null space of its float64 Jacobian."""

from dataclasses import dataclass

import torch
from grammar import drawn
from null_checks import ROUNDING, RoundingChooses, audited, change, counted

from addnorm.errors import InputError
from addnorm.redundancy.execution.generic_weights import generic
from addnorm.redundancy.graph.static_analysis import NotExported


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Counts of joint null directions of one module."""

    seed: int
    proved: int
    truth: int
    """Dimension of the Jacobian's null space, at several inputs."""
    change: float
    """Largest relative change of the output along the proved directions."""
    skipped: str = ""
    """Reason why nothing was compared."""

    @property
    def false(self) -> bool:
        """True if the static method claims a direction that is none."""
        return self.change > ROUNDING or (not self.skipped and self.proved > self.truth)


def compared(seed: int) -> Compared:
    """Analyse one module, count by its Jacobian, and move it along the claim."""
    model, x = drawn(seed)
    try:
        case = audited(model, x)
    except (InputError, NotExported) as error:
        return Compared(seed=seed, proved=0, truth=0, change=0.0, skipped=str(error).split(",")[0][:80])
    space = case.analysis.space
    try:
        moved = change(case, space, generic(model)) if space.dim else 0.0
    except RoundingChooses:
        return Compared(
            seed=seed, proved=space.dim, truth=0, change=0.0, skipped="rounding chooses between equal scores"
        )
    try:
        truth = counted(case)
    except torch.linalg.LinAlgError:
        return Compared(seed=seed, proved=space.dim, truth=0, change=moved, skipped="the Jacobian is not finite")
    return Compared(seed=seed, proved=space.dim, truth=truth, change=moved)
