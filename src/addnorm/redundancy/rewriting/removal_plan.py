"""Plan of a removal: the parameters that can be removed together, and the changes of the others.

The parameters are tried one after the other: the user's preferences, then redundant ones, then those whose fold
multiplies by a weight, then those whose fold solves equations (a weight's inverse); within a group, norm shifts come
last and small amplifications first. A parameter is removed if the null space can cancel arbitrary values of it while
all parameters removed so far stay zero, and if the changes stay within `max_amplification` times the numbers removed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.tracked_parameters import TrackedParameter
from addnorm.redundancy.graph.null_space import Component, Delta, NullSpace
from addnorm.redundancy.rewriting.folds import AMPLIFIED, Compensation, compensations, sparser
from addnorm.redundancy.verdict.finding import Finding

_SAME = 1e-8
_KEPT = ("undecided", "unproved", "negligible")
"""Verdicts with which a parameter is neither removed nor reduced."""
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


@dataclass(frozen=True, kw_only=True)
class RemovalPlan:
    """Parameters to remove, and new values of the others."""

    removed: tuple[str, ...]
    values: dict[str, Tensor]
    """New float64 values of all tracked parameters; those removed are zero."""
    folded: dict[str, Delta]
    """Changes of other parameters by each removed one."""
    reduced: tuple[str, ...]
    """Parameters that keep only their effective directions: part of a fused bias, the mean before a layer norm."""
    refused: tuple[str, ...]
    """Parameters that are kept only because of `max_amplification`."""


def plan_removals(
    model: nn.Module,
    space: NullSpace,
    findings: Sequence[Finding],
    *,
    prefer: Sequence[str],
    max_amplification: float,
) -> RemovalPlan:
    """Choose the parameters to remove.

    Args:
        model: the model to rewrite.
        space: the null space at its weights.
        findings: the verdicts.
        prefer: regular expressions over parameter names, in the order in which to remove them first.
        max_amplification: largest allowed ratio of the largest |change| to the largest |removed number|.

    Raises:
        InputError: a preference is not a regular expression or matches no removable parameter, or `max_amplification`
            is negative.
    """
    if not max_amplification >= 0:
        raise InputError(f"expected `max_amplification` to be at least zero, got {max_amplification}.")
    tracked = space.tracked
    parameters = dict(model.named_parameters(remove_duplicate=False))
    values = {
        entry.name: parameters[entry.name].detach().to("cpu", torch.float64, copy=True)
        for entry in tracked.entries
        if entry.coordinates == "entries"
    }
    removable = [
        each
        for each in findings
        if each.absorbable_dof == each.size and each.verdict not in _KEPT and each.parameter in values
    ]
    _check_preferences(prefer, [each.parameter for each in removable])
    folded: dict[str, Delta] = {}
    refused: list[str] = []
    for removed in (each.parameter for each in sorted(removable, key=lambda each: _order(each, model, prefer))):
        best = _best_compensation(space, tracked[removed], values, list(folded))
        if best is None:
            continue
        if best.amplification > max_amplification:
            refused.append(removed)
            continue
        values[removed] = torch.zeros_like(values[removed])
        for name, change in best.moved.items():
            values[name] = values[name] + change
        folded[removed] = best.moved
    reduced = []
    for each in findings:
        name, free = each.parameter, space.redundant(each.parameter)
        if name in folded or name not in values or not len(free) or each.verdict in _KEPT:
            continue
        # Redundant directions need no other parameter, so taking them out changes nothing that was planned.
        redundant_part = (free.T @ (free @ values[name].reshape(-1))).reshape(values[name].shape)
        values[name] = values[name] - redundant_part
        reduced.append(name)
    return RemovalPlan(
        removed=tuple(folded), values=values, folded=folded, reduced=tuple(reduced), refused=tuple(refused)
    )


def _check_preferences(prefer: Sequence[str], removable: Sequence[str]) -> None:
    for pattern in prefer:
        try:
            matched = any(re.search(pattern, name) for name in removable)
        except re.error as error:
            raise InputError(
                f"expected `prefer` to hold regular expressions over parameter names, got {pattern!r}: {error}."
            ) from error
        if not matched:
            raise InputError(
                f"expected `prefer` to match removable parameters, got {pattern!r}. "
                f"Removable: {', '.join(removable) or 'none'}."
            )


def _order(finding: Finding, model: nn.Module, prefer: Sequence[str]) -> tuple[int, bool, bool, bool, float]:
    preference = next((index for index, each in enumerate(prefer) if re.search(each, finding.parameter)), len(prefer))
    owner = model.get_submodule(finding.parameter.rpartition(".")[0])
    amplification = max((fold.amplification for fold in finding.fold_into), default=0.0)
    solved = any(fold.solved for fold in finding.fold_into)
    # Order matters, because removed parameters are held. A norm's shift late: it is the natural place for what others
    # lose.
    return preference, finding.verdict != "redundant", solved, isinstance(owner, _NORMS), amplification


def _best_compensation(
    space: NullSpace, entry: TrackedParameter, values: dict[str, Tensor], removed: Sequence[str]
) -> Compensation | None:
    """The best compensation for setting one parameter to zero that keeps the removed ones at zero; None if there is
    none for arbitrary values of the parameter."""
    component = space.component(entry.name)
    if component is None:
        return None
    value = values[entry.name]
    held = [name for name in removed if name in component.names]
    drawn = torch.randn(value.numel(), generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    # A compensation that exists only for the present values, zeros in particular, does not count: random ones must have
    # one too.
    if bool(value.any()):
        # Among those that leave removed parameters at zero: a fold into one of them would bring it back.
        possible = [
            each
            for each in compensations(space, entry, -value)
            if each.moved.keys().isdisjoint(held) and each.moved.keys() <= values.keys()
        ]
        general = [each for each in compensations(space, entry, drawn) if each.moved.keys().isdisjoint(held)]
        if possible and general:
            best = min(possible, key=lambda each: each.cost)
            sparse = sparser(space, entry, -value, best)
            return sparse if sparse.moved.keys().isdisjoint(held) and sparse.amplification <= AMPLIFIED else best
    elif any(each.moved.keys().isdisjoint(held) for each in compensations(space, entry, drawn)):
        return Compensation(moved={}, amplification=0.0)
    return _jointly(space, component, entry, values, held, drawn)


def _jointly(
    space: NullSpace,
    component: Component,
    entry: TrackedParameter,
    values: dict[str, Tensor],
    held: Sequence[str],
    drawn: Tensor,
) -> Compensation | None:
    """The compensation by all free vectors together that moves the others least."""
    # Two right-hand sides: a random value, which shows that any value can be cancelled, and the present one, whose
    # solution is used.
    fixed = torch.cat([space.rows(name, component.blocks) for name in (entry.name, *held)])
    targets = torch.zeros(len(fixed), 2, dtype=torch.float64)
    targets[: len(drawn), 0] = drawn
    targets[: len(drawn), 1] = -values[entry.name].reshape(-1)
    free = torch.linalg.lstsq(fixed, targets, driver="gelsd").solution
    miss = torch.linalg.vector_norm(fixed @ free - targets, dim=0)
    if bool((miss > _SAME * torch.linalg.vector_norm(targets, dim=0)).any()):
        return None
    others = [name for name in component.names if name != entry.name and name not in held]
    moved = {name: space.rows(name, component.blocks) @ free[:, 1] for name in others}
    size = float(values[entry.name].abs().max())
    moved = {name: change for name, change in moved.items() if float(change.abs().max()) > _SAME * size}
    if not moved.keys() <= values.keys():
        return None
    largest = max((float(change.abs().max()) for change in moved.values()), default=0.0)
    shaped = {name: change.reshape(values[name].shape) for name, change in moved.items()}
    return Compensation(moved=shaped, amplification=largest / size if size else 0.0)
