"""What the numerical method says about every parameter, whether it could count or only try what the static method claims."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.graph.joint_space import Space
from addnorm.redundancy.numeric.method import Case, Judged, judge, largest_effect
from addnorm.redundancy.numeric.probe import Probe
from addnorm.redundancy.numeric.sparse_vectors import peel

COUNTED_ALONE = 4096
"""Scalars up to which the numerical method counts a null space when nothing else does."""
COUNTED_BESIDE = 1024
"""Scalars up to which it counts beside the static method; above, it tries the claims. A count costs n gradients and n³."""
_GRADIENTS = 8


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The numerical method's say, per parameter in the order of `Tracked.entries`."""

    counted: bool
    """Whether it counted by itself; otherwise it tried what is claimed."""
    space: Space | None
    """The null space it counted, where it speaks alone."""
    redundant: tuple[int | None, ...]
    absorbable: tuple[int | None, ...]
    negligible: tuple[int, ...]
    effect: tuple[float | None, ...]
    refuted: tuple[float | None, ...]
    """Change of the output along a claimed null direction that moves this parameter, where that is above rounding."""
    unmoved: tuple[bool, ...]
    """Whether moving the parameter off its claimed redundant directions changed nothing: it may be redundant after all."""
    unclear: tuple[bool, ...]
    """Whether gradients of the parameter go down to rounding one by one, so that its redundant directions cannot be counted."""
    unread: tuple[int, ...]
    """Numbers of the parameter that no input tried has read, and that nothing is claimed about."""
    rounding: float
    joint: int | None


def count_null(probe: Probe, cases: Cases, claim: Space | None) -> Judgement:
    """Count by itself, and try the static method's claim along the way."""
    tracked = probe.tracked
    claimed = _columns(claim) if claim is not None else None
    judged = judge(probe, cases, claimed)
    refuted: tuple[float | None, ...] = (None,) * len(tracked.entries)
    if judged.refuted is not None and claim is not None:
        refuted = _localised(probe, [cases(number) for number in range(6)], claim, judged.rounding)
    return Judgement(
        counted=True,
        space=peel(tracked, judged.counted.null) if claim is None else None,
        redundant=judged.counted.redundant,
        absorbable=judged.counted.absorbable,
        negligible=_negligible(judged),
        effect=judged.effect,
        refuted=refuted,
        unmoved=(False,) * len(tracked.entries),
        unclear=judged.unclear,
        unread=tuple(int(judged.unread[each.offset : each.offset + each.size].sum()) for each in tracked.entries),
        rounding=judged.rounding,
        joint=judged.counted.joint,
    )


def try_claim(probe: Probe, cases: Cases, claim: Space) -> Judgement:
    """For models whose null space is too large to count: move along random null vectors of the claim, which move every
    parameter that is claimed to be free; and look at the gradient of each parameter off its claimed redundant directions."""
    tracked = probe.tracked
    tried = [cases(number) for number in range(3)]
    rounding = probe.rounding(tried[:1])
    generator = torch.Generator().manual_seed(2)
    refuted: tuple[float | None, ...] = (None,) * len(tracked.entries)
    move = tracked.flatten(claim.sample(generator))
    if claim.dim and probe.effect(tried, move / move.abs().max()) > rounding:
        refuted = _localised(probe, tried, claim, rounding)
    rows = torch.cat([probe.rows(inputs, point, _GRADIENTS, generator) for point, inputs in tried[:2]])
    unmoved = []
    unread = []
    for entry in tracked.entries:
        mine = rows[:, entry.offset : entry.offset + entry.size]
        proved = claim.redundant(entry.name)
        silent = (mine == 0).all(0)
        unread.append(int(silent.sum()) if len(proved) < entry.size else 0)
        rest = mine - (mine @ proved.T) @ proved if 0 < len(proved) < entry.size else mine
        if len(proved) == entry.size or float(torch.linalg.vector_norm(rest, dim=1).max()) > rounding:
            unmoved.append(False)
            continue
        off = torch.zeros(tracked.size, 1, dtype=torch.float64)
        drawn = torch.randn(entry.size, generator=generator, dtype=torch.float64)
        off[entry.offset : entry.offset + entry.size, 0] = drawn - proved.T @ (proved @ drawn)
        unmoved.append(largest_effect(probe, tried, off) <= rounding)
    nothing = (None,) * len(tracked.entries)
    return Judgement(
        counted=False,
        space=None,
        redundant=nothing,
        absorbable=nothing,
        negligible=(0,) * len(tracked.entries),
        effect=nothing,
        refuted=refuted,
        unmoved=tuple(unmoved),
        unclear=(False,) * len(tracked.entries),
        unread=tuple(unread),
        rounding=rounding,
        joint=None,
    )


def find_dead(probe: Probe, cases: Cases) -> Judgement:
    """With neither a claim nor the means to count: which parameters move nothing at all."""
    entries = probe.tracked.entries
    nothing = try_claim(probe, cases, Space(probe.tracked, {}))
    # A gradient of exactly zero is that of a number that was not read: rounding leaves something of what cancels.
    still = [moved and not blind for moved, blind in zip(nothing.unmoved, nothing.unread, strict=True)]
    return Judgement(
        counted=False,
        space=None,
        redundant=tuple(entry.size if each else None for entry, each in zip(entries, still, strict=True)),
        absorbable=tuple(entry.size if each else None for entry, each in zip(entries, still, strict=True)),
        negligible=nothing.negligible,
        effect=nothing.effect,
        refuted=nothing.refuted,
        unmoved=nothing.unmoved,
        unclear=nothing.unclear,
        unread=nothing.unread,
        rounding=nothing.rounding,
        joint=None,
    )


def _columns(claim: Space) -> Float64[Tensor, "move null"]:
    rows = claim.basis()
    return torch.linalg.qr(rows.T).Q if len(rows) else rows.T


def _negligible(judged: Judged) -> tuple[int, ...]:
    both = zip(judged.counted.redundant, judged.counted_weak.redundant, strict=True)
    return tuple(weak - strict for strict, weak in both)


def _localised(probe: Probe, cases: Sequence[Case], claim: Space, rounding: float) -> tuple[float | None, ...]:
    """Which parameters a false claim is about: whole components are tried, then each parameter's own directions."""
    tracked = probe.tracked
    found: dict[str, float] = {}
    generator = torch.Generator().manual_seed(3)
    drawn = claim.sample(generator)
    for component in claim.components:
        move = tracked.flatten({name: drawn[name] for name in component.names})
        worst = probe.effect(cases, move / move.abs().max())
        if worst <= rounding:
            continue
        for name in component.names:
            entry, own = tracked[name], claim.redundant(name)
            alone = torch.zeros(tracked.size, len(own), dtype=torch.float64)
            alone[entry.offset : entry.offset + entry.size] = own.T
            if len(own) < entry.size or largest_effect(probe, cases, alone) > rounding:
                found[name] = worst
    return tuple(found.get(entry.name) for entry in tracked.entries)
