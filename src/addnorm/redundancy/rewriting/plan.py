"""Which parameters to remove together, and what the others change by.

Parameters are taken one after the other: those that the user prefers first, then those redundant alone, then those whose fold
 multiplies by a weight, then those that need equations solved (a weight's inverse); norm shifts after the others of their
group, and by how little the fold amplifies. Each is removed if the null space, with everything removed so far held at
zero, can undo it whatever its values are, and if what takes over stays within `max_amplification` times the numbers removed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.tracked_parameters import Entry
from addnorm.redundancy.finding import Finding
from addnorm.redundancy.graph.joint_space import Component, Delta, Space
from addnorm.redundancy.rewriting.folds import AMPLIFIED, Way, fewer, ways

_SAME = 1e-8
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to remove."""

    removed: tuple[str, ...]
    values: dict[str, Tensor]
    """New float64 values of every tracked parameter, those removed at zero."""
    folded: dict[str, Delta]
    """What each of them changed in others."""
    reduced: tuple[str, ...]
    """Parameters that stay but lose their redundant directions: part of a fused bias, the mean before a layer norm."""
    refused: tuple[str, ...]
    """Parameters that could go but for the cap on amplification."""


def plan(
    model: nn.Module,
    space: Space,
    findings: Sequence[Finding],
    *,
    prefer: Sequence[str],
    max_amplification: float,
) -> Plan:
    """Choose what goes.

    Args:
        model: with the values to be rewritten.
        space: the null space at its weights.
        findings: the verdicts.
        prefer: regular expressions over parameter names, to be removed first, in this order.
        max_amplification: largest |change| over largest |removed number| that a fold may have.

    Raises:
        InputError: a preference is no regular expression or matches nothing that can go.
    """
    if not max_amplification >= 0:
        raise InputError(f"`max_amplification` is a number of at least zero; {max_amplification} arrived.")
    tracked = space.tracked
    parameters = dict(model.named_parameters(remove_duplicate=False))
    values = {
        entry.name: parameters[entry.name].detach().to("cpu", torch.float64, copy=True)
        for entry in tracked.entries
        if entry.coordinates == "entries"
    }
    able = [
        each
        for each in findings
        if each.absorbable_dof == each.size
        and each.verdict not in ("undecided", "negligible")
        and each.parameter in values
    ]
    _check(prefer, [each.parameter for each in able])
    folded: dict[str, Delta] = {}
    refused: list[str] = []
    for found in sorted(able, key=lambda each: _order(each, model, prefer)):
        way = _way(space, tracked[found.parameter], values, list(folded))
        if way is None:
            continue
        if way.amplification > max_amplification:
            refused.append(found.parameter)
            continue
        values[found.parameter] = torch.zeros_like(values[found.parameter])
        for name, change in way.moved.items():
            values[name] = values[name] + change
        folded[found.parameter] = way.moved
    reduced = []
    for each in findings:
        name, free = each.parameter, space.redundant(each.parameter)
        if name in folded or name not in values or not len(free) or each.verdict in ("undecided", "negligible"):
            continue
        useless = (free.T @ (free @ values[name].reshape(-1))).reshape(values[name].shape)
        values[name] = values[name] - useless
        reduced.append(name)
    return Plan(removed=tuple(folded), values=values, folded=folded, reduced=tuple(reduced), refused=tuple(refused))


def _check(prefer: Sequence[str], able: Sequence[str]) -> None:
    for pattern in prefer:
        try:
            matched = any(re.search(pattern, name) for name in able)
        except re.error as error:
            raise InputError(
                f"`prefer` holds regular expressions over parameter names; {pattern!r} is none: {error}."
            ) from error
        if not matched:
            raise InputError(
                f"`prefer` names {pattern!r}, which can not be removed. Can be: {', '.join(able) or 'none'}."
            )


def _order(found: Finding, model: nn.Module, prefer: Sequence[str]) -> tuple[int, bool, bool, bool, float]:
    wanted = next((place for place, each in enumerate(prefer) if re.search(each, found.parameter)), len(prefer))
    owner = model.get_submodule(found.parameter.rpartition(".")[0])
    amplification = max((fold.amplification for fold in found.fold_into), default=0.0)
    solved = any(fold.solved for fold in found.fold_into)
    return wanted, found.verdict != "redundant", solved, isinstance(owner, _NORMS), amplification


def _way(space: Space, entry: Entry, values: dict[str, Tensor], removed: Sequence[str]) -> Way | None:
    """The best way to take one parameter to zero that keeps those removed at zero; None where there is none in general."""
    component = space.component(entry.name)
    if component is None:
        return None
    now = values[entry.name]
    held = [name for name in removed if name in component.names]
    drawn = torch.randn(now.numel(), generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    # What only these values can lose, zeros above all, is not removable: the way must exist for random ones.
    if bool(now.any()):
        found = [
            way
            for way in ways(space, entry, -now)
            if way.moved.keys().isdisjoint(held) and way.moved.keys() <= values.keys()
        ]
        general = [way for way in ways(space, entry, drawn) if way.moved.keys().isdisjoint(held)]
        if found and general:
            best = min(found, key=lambda each: each.cost)
            thinner = fewer(space, entry, -now, best)
            return thinner if thinner.moved.keys().isdisjoint(held) and thinner.amplification <= AMPLIFIED else best
    elif any(way.moved.keys().isdisjoint(held) for way in ways(space, entry, drawn)):
        return Way(moved={}, amplification=0.0)
    return _jointly(space, component, entry, values, held, drawn)


def _jointly(
    space: Space, component: Component, entry: Entry, values: dict[str, Tensor], held: Sequence[str], drawn: Tensor
) -> Way | None:
    """By all free vectors together, moving the others least."""
    widths = {block: each.width for maps in space.maps.values() for block, each in maps.items()}

    def rows(name: str) -> Tensor:
        mine = space.maps[name]
        size = space.tracked[name].size
        return torch.cat(
            [
                mine[block].dense() if block in mine else torch.zeros(size, widths[block], dtype=torch.float64)
                for block in component.blocks
            ],
            dim=1,
        )

    fixed = torch.cat([rows(entry.name), *(rows(name) for name in held)])
    targets = torch.zeros(len(fixed), 2, dtype=torch.float64)
    targets[: len(drawn), 0] = drawn
    targets[: len(drawn), 1] = -values[entry.name].reshape(-1)
    free = torch.linalg.lstsq(fixed, targets, driver="gelsd").solution
    miss = torch.linalg.vector_norm(fixed @ free - targets, dim=0)
    if bool((miss > _SAME * torch.linalg.vector_norm(targets, dim=0)).any()):
        return None
    others = [name for name in component.names if name != entry.name and name not in held]
    moved = {name: rows(name) @ free[:, 1] for name in others}
    size = float(values[entry.name].abs().max())
    moved = {name: change for name, change in moved.items() if float(change.abs().max()) > _SAME * size}
    if not moved.keys() <= values.keys():
        return None
    largest = max((float(change.abs().max()) for change in moved.values()), default=0.0)
    shaped = {name: change.reshape(values[name].shape) for name, change in moved.items()}
    return Way(moved=shaped, amplification=largest / size if size else 0.0)
