"""The numerical judge: what moves the output, found by moving it. Independent of the static analysis, and judges it.

Gradients of random projections of the output, over several inputs, lengths and points of the tracked parameters, are stacked to
one Jacobian, and its singular values sort directions (always of the Jacobian itself: the square of a number that rounding has
lost cannot be told from zero):

    sigma <= 16 eps sqrt(n) sigma_max     candidate: no gradient that rounding could not have made
    sigma <= 1e-6 sigma_max               weak
    else                                  live

Nothing is decided by a gradient being small. Candidates are confirmed by finite moves along random combinations of them; where
those change the output (a gradient that was not the truth: a padding row, the choice of experts) and for weak directions, every
direction is moved by itself and the singular values of the changes decide:

    change <= rounding                    null: rounding is the output's own condition number times eps (`Probe.rounding`)
    change <= float32's eps               negligible
    else                                  live

That a null direction lies inside one parameter is asked of that parameter's own gradients, as strictly. An angle does not
tell: in a deep chain, directions whose effect is 1e-8 are nearly null vectors of the whole. Where gradients go down to rounding
one by one, no line can be drawn between small and zero, and the parameter is called unclear.

A number whose every gradient is exactly zero was not read by the inputs tried: a row that none looks up, an expert that none
chose. Rounding would have left something of a gradient that cancels. More inputs are tried then, through all rows of the tables
that inputs select from, and what is still not read is called unread, and no null direction.

Rows are in units of the output's root mean square and never rescaled per parameter: a block of pure rounding noise, blown up to
size one, would hide that it is null.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from addnorm.redundancy.algebra.svd import svd
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.numeric.probe import Probe

Case = tuple[int, Inputs]
"""A point of the tracked parameters, by number, and inputs."""

NEGLIGIBLE = torch.finfo(torch.float32).eps
"""A unit move that changes the output relatively by less cannot be seen in float32."""
_WEAK = 1e-6
_EXTRA_ROWS = 16
_COMBINATIONS = 3
_FEWEST = 6
_PATIENCE = 24
"""Inputs tried at least for a number that none has read."""
_GAP = 1e4
"""What lies between gradients that are rounding and those that are not, where the two can be told apart."""
_ALIKE = 1e-6
"""One less the cosine of the angle up to which two directions count as the same."""
_INSIDE = 1e-7
"""Sine of the angle below which a null direction counts as lying inside one parameter."""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A null space over several parameters, counted per parameter."""

    null: Float64[Tensor, "move null"]
    """Orthonormal columns."""
    redundant: tuple[int, ...]
    absorbable: tuple[int, ...]

    @property
    def joint(self) -> int:
        """Its dimension."""
        return self.null.shape[1]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What the judge found."""

    counted: Counted
    """Moves that change nothing."""
    counted_weak: Counted
    """Moves that change nothing, or less than float32 can show."""
    effect: tuple[float | None, ...]
    """Per parameter: relative change of the output along the weakest of its directions that is not null, where that is weak."""
    rounding: float
    unclear: tuple[bool, ...]
    """Per parameter: whether some of its directions were called null although others' gradients are next to rounding."""
    unread: Bool[Tensor, " move"]
    """Numbers that no input tried has read, and that are not claimed to be null: nothing is known about them."""
    refuted: float | None = field(default=None)
    """Change of the output along the static analysis' null space, where that is above rounding."""


def inside(null: Float64[Tensor, "move null"], place: slice) -> Float64[Tensor, "entry redundant"]:
    """The directions of a null space (orthonormal columns) that lie inside one parameter, as orthonormal columns."""
    mine = null[place]
    left, values, right = svd(mine, full_matrices=False)
    likely = values > 0.5
    outside = null.clone()
    outside[place] = 0
    leak = torch.linalg.vector_norm(outside @ right[likely].T, dim=0)
    return left[:, likely][:, leak <= _INSIDE]


def count(null: Float64[Tensor, "move null"], sizes: Sequence[int]) -> Counted:
    """Count a null space per parameter."""
    redundant, absorbable, start = [], [], 0
    for size in sizes:
        place = slice(start, start + size)
        start += size
        values = svd(null[place])[1] if null.shape[1] else torch.zeros(0)
        absorbable.append(int((values > _INSIDE).sum()))
        redundant.append(inside(null, place).shape[1] if absorbable[-1] else 0)
    return Counted(null=null, redundant=tuple(redundant), absorbable=tuple(absorbable))


def jacobian(probe: Probe, cases: Cases) -> tuple[Float64[Tensor, "row move"], int]:
    """Stacked gradients: at least n + 16 rows, from at least six points and inputs, or more where an output is short or a
    number has not been read; and how many inputs that took."""
    generator = torch.Generator().manual_seed(0)
    wanted = probe.tracked.size + _EXTRA_ROWS
    share = -(-wanted // _FEWEST)
    patience = max(_PATIENCE, cases.sweep) if cases.fresh else _FEWEST
    unread = torch.ones(probe.tracked.size, dtype=torch.bool)
    blocks: list[Tensor] = []
    number = 0
    while (
        number < _FEWEST or sum(len(block) for block in blocks) < wanted or (number < patience and bool(unread.any()))
    ):
        point, inputs = cases(number)
        blocks.append(probe.rows(inputs, point, share, generator))
        unread &= (blocks[-1] == 0).all(0)
        number += 1
    return torch.cat(blocks), number


def judge(probe: Probe, cases: Cases, claimed: Float64[Tensor, "move null"] | None = None) -> Judged:
    """Count the null space of all tracked parameters, and judge one that is claimed.

    Args:
        probe: the model.
        cases: numbered points and inputs, as many as asked for.
        claimed: null space according to the static analysis, orthonormal columns.

    Cost: about n gradients of the model and one singular value decomposition of n by n, for n tracked scalars.
    """
    rows, number = jacobian(probe, cases)
    tried = [cases(each) for each in range(number)]
    rounding = probe.rounding(tried)
    _, found, right = svd(rows, full_matrices=True)
    values = torch.zeros(probe.tracked.size, dtype=torch.float64)
    values[: len(found)] = found
    top = float(values.max()) or 1.0
    candidate = values <= 16 * torch.finfo(torch.float64).eps * probe.tracked.size**0.5 * top
    weak = (values <= _WEAK * top) & ~candidate
    directions = right.T
    null, faint = _measured(probe, tried, directions[:, candidate], directions[:, weak], rounding)
    unread = (rows == 0).all(0) & _spans(null)
    null = _without(null, unread)
    refuted = None
    if claimed is not None and claimed.shape[1]:
        worst = largest_effect(probe, tried, claimed)
        refuted = worst if worst > rounding else None
        if refuted is None:  # what is proved and confirmed is null, however the extra candidates were sorted
            null = _span(claimed, _beyond(null, claimed, unread))
            unread &= ~_spans(claimed)
    sizes = [entry.size for entry in probe.tracked.entries]
    null_and_faint = _span(null, faint)
    counted, counted_weak = count(null, sizes), count(null_and_faint, sizes)
    floor = max(16 * torch.finfo(torch.float64).eps * probe.tracked.size**0.5 * top, rounding * len(rows) ** 0.5)
    places = [slice(entry.offset, entry.offset + entry.size) for entry in probe.tracked.entries]
    silent = [_silent(probe, tried, rows, null, place, floor, rounding) for place in places]
    counted = replace(counted, redundant=tuple(own.shape[1] for own, _ in silent))
    effect = _effects(probe, tried, [own for own, _ in silent], counted_weak)
    return Judged(
        counted=counted,
        counted_weak=counted_weak,
        effect=effect,
        rounding=rounding,
        unclear=tuple(bool(own.shape[1]) and not clear for own, clear in silent),
        unread=unread,
        refuted=refuted,
    )


def _silent(
    probe: Probe,
    cases: Sequence[Case],
    rows: Float64[Tensor, "row move"],
    null: Float64[Tensor, "move null"],
    place: slice,
    floor: float,
    rounding: float,
) -> tuple[Float64[Tensor, "entry redundant"], bool]:
    """The directions inside one parameter that lie in a null space and whose own gradients are rounding too, or whose moves
    are; and whether no other gradient of the parameter is next to rounding."""
    near = inside(null, place)
    if not near.shape[1]:
        return near, True
    _, values, right = svd(rows[:, place])
    zero = right[values <= floor].T
    _, cosines, turn = svd(near.T @ zero)
    shared = (zero @ turn.T)[:, cosines >= 1 - _ALIKE]
    rest = near - shared @ (shared.T @ near)
    left, sines, _ = svd(rest)
    left = left[:, sines > 0.5]
    if left.shape[1]:
        move = torch.zeros(probe.tracked.size, left.shape[1], dtype=torch.float64)
        move[place] = left
        if largest_effect(probe, cases, move) <= rounding:
            shared = torch.cat([shared, left], dim=1)
    clear = not bool(((values > floor) & (values <= floor * _GAP)).any())
    return shared, clear


def _spans(null: Float64[Tensor, "move null"]) -> Bool[Tensor, " move"]:
    """The numbers that a space (orthonormal columns) moves each by itself."""
    return (1 - null.square().sum(1)).abs() <= _INSIDE


def _without(null: Float64[Tensor, "move null"], numbers: Bool[Tensor, " move"]) -> Float64[Tensor, "move kept"]:
    """A space (orthonormal columns) that moves each of some numbers by itself, without those."""
    if not bool(numbers.any()):
        return null
    left, values, _ = svd(torch.where(numbers[:, None], 0.0, null), full_matrices=False)
    return left[:, values > 0.5]


def _beyond(
    null: Float64[Tensor, "move null"], claimed: Float64[Tensor, "move claim"], unread: Bool[Tensor, " move"]
) -> Float64[Tensor, "move beyond"]:
    """What of a space is not in one that is claimed, as far as numbers were read: how a claim goes on in those that were not
    read, nothing contradicts."""
    if not bool(unread.any()):
        return null
    left, values, _ = svd(torch.where(unread[:, None], 0.0, claimed), full_matrices=False)
    seen = left[:, values > _INSIDE]
    rest = null - seen @ (seen.T @ null)
    left, values, _ = svd(rest - seen @ (seen.T @ rest), full_matrices=False)
    return left[:, values > _INSIDE]


def largest_effect(probe: Probe, cases: Sequence[Case], basis: Float64[Tensor, "move direction"]) -> float:
    """The largest relative change of the output along random combinations of some directions, largest entry moved by one."""
    generator = torch.Generator().manual_seed(1)
    worst = 0.0
    for _ in range(_COMBINATIONS if basis.shape[1] else 0):
        move = basis @ torch.randn(basis.shape[1], generator=generator, dtype=torch.float64)
        worst = max(worst, probe.effect(cases, move / move.abs().max()))
    return worst


def _measured(
    probe: Probe, cases: Sequence[Case], candidate: Tensor, weak: Tensor, rounding: float
) -> tuple[Tensor, Tensor]:
    """Null and negligible directions among those with little or no gradient, by moving along them."""
    null = candidate
    suspects = weak
    if largest_effect(probe, cases, candidate) > rounding:
        null, suspects = candidate[:, :0], torch.cat([candidate, weak], dim=1)
    if not suspects.shape[1]:
        return null, suspects
    changes = torch.stack(
        [
            torch.cat([probe.change(inputs, point, direction / direction.abs().max()) for point, inputs in cases])
            * direction.abs().max()
            for direction in suspects.T
        ],
        dim=1,
    )
    finite = torch.isfinite(changes).all(1)
    if not bool(finite.all()):
        changes = torch.where(torch.isfinite(changes), changes, torch.ones((), dtype=torch.float64))
    _, values, right = svd(changes, full_matrices=False)
    turned = suspects @ right.T
    still = turned[:, values <= rounding]
    faint = turned[:, (values > rounding) & (values <= NEGLIGIBLE)]
    # The changes of a jump do not add up, so what their combination promises is tried once more.
    if largest_effect(probe, cases, still) > rounding:
        still = still[:, :0]
    if largest_effect(probe, cases, faint) > NEGLIGIBLE:
        faint = faint[:, :0]
    return _span(null, still), faint


def _span(first: Tensor, second: Tensor) -> Tensor:
    """Orthonormal columns for the sum of two spaces given by orthonormal columns, the first's own ones first."""
    beyond = second - first @ (first.T @ second)
    beyond = beyond - first @ (first.T @ beyond)
    if not beyond.shape[1]:
        return first
    left, values, _ = svd(beyond)
    return torch.cat([first, left[:, values > _INSIDE]], dim=1)


def _effects(probe: Probe, cases: Sequence[Case], own: Sequence[Tensor], weak: Counted) -> tuple[float | None, ...]:
    found: list[float | None] = []
    sizes, start = [entry.size for entry in probe.tracked.entries], 0
    for size, proved, loose in zip(sizes, own, weak.redundant, strict=True):
        place = slice(start, start + size)
        start += size
        if loose == proved.shape[1]:
            found.append(None)
            continue
        mine = inside(weak.null, place)
        rest = mine - proved @ (proved.T @ mine)
        move = torch.zeros(probe.tracked.size, rest.shape[1], dtype=torch.float64)
        move[place] = rest
        found.append(largest_effect(probe, cases, move))
    return tuple(found)
