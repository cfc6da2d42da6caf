"""Estimate of the null space from gradients and finite moves, independent of the graph.

Gradients of random projections of the output, at several inputs, lengths and points of the tracked parameters, are
stacked in one Jacobian, whose singular values sort the directions. They are the Jacobian's own, never roots of
eigenvalues of JᵀJ: squaring turns 1e-9 into 1e-18, which rounding has lost.

    sigma <= 16 eps sqrt(n) sigma_max     candidate: rounding explains every gradient along it; all are candidates where
                                          sigma_max itself is rounding
    sigma <= 1e-6 sigma_max               weak
    else                                  effective

A small gradient alone decides nothing. Candidates are confirmed by finite moves along random combinations of them.
Where those change the output (a gradient that differs from the effect: a padding row, the choice of an expert) and for
weak directions, each direction is moved by itself, and the singular values of the changes decide:

    change <= rounding                    null: rounding is the output's own condition number times eps (`Probe.rounding`)
    change <= eps of float32              negligible
    else                                  effective

The angle between the candidates and a proved null space shows nothing either: where other gradients are a billionth of the
largest, rounding turns the candidates by 1e-7. A direction beyond the proved ones counts only if a move along it changes
nothing.

Whether a null direction lies inside one parameter is decided by that parameter's own gradients, as strictly. The angle
between subspaces is not sufficient: in a deep chain, directions with an effect of 1e-8 are nearly null vectors of the
whole. Where gradients decrease gradually to rounding, small and zero cannot be separated, and the parameter is called
unclear.

An entry whose gradients are all exactly zero was not read by the tested inputs: a row that none indexes, an expert that
none selects. Cancellation would have left rounding errors. More inputs are tested then, through all rows of the tables
that inputs index; an entry that none of them reads is called unread, and is not a null direction.

Rows are in units of the output's root mean square and never rescaled per parameter: a block of pure rounding noise,
scaled to size one, would hide that it is null.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from addnorm.redundancy.algebra.rank import svd
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.numeric.probe import Probe
from addnorm.redundancy.numeric.subspaces import (
    INSIDE,
    beyond_claim,
    inside,
    sum_of,
    unit_coordinates,
    without_coordinates,
)

Case = tuple[int, Inputs]
"""A point of the tracked parameters, by number, and inputs."""

NEGLIGIBLE = torch.finfo(torch.float32).eps
"""Relative change of the output by a unit move below which float32 does not resolve it."""
_WEAK = 1e-6
_EXTRA_ROWS = 16
_COMBINATIONS = 3
_FEWEST_CASES = 6
_UNREAD_CASES = 24
"""Number of cases tried at least for an entry that none has read."""
_GAP = 1e4
"""Ratio between gradients that are zero up to rounding and the others, if the two can be separated."""
_CLEAR = 16
"""Ratio to the gradients along proved directions, which are rounding, from which a gradient is not zero."""
_TURNED = 1e-3
"""Sine of the angle by which rounding may turn a candidate out of a proved null space."""
_ALIKE = 1e-6
"""One minus the cosine of the angle up to which two directions count as the same."""


@dataclass(frozen=True, kw_only=True)
class CountedNullSpace:
    """A null space of several parameters, counted per parameter."""

    null: Float64[Tensor, "move null"]
    """Orthonormal columns."""
    redundant: tuple[int, ...]
    absorbable: tuple[int, ...]

    @property
    def joint(self) -> int:
        """Its dimension."""
        return self.null.shape[1]


@dataclass(frozen=True, kw_only=True)
class NullSpaceEstimate:
    """The estimated null space, counted per parameter, and the result of a test of a claimed one."""

    counted: CountedNullSpace
    """Moves that change nothing."""
    counted_weak: CountedNullSpace
    """Moves that change nothing, or less than float32 resolves."""
    effect: tuple[float | None, ...]
    """Per parameter, the relative change of the output along its weakest direction that is not null, if that is weak."""
    rounding: float
    unclear: tuple[bool, ...]
    """Per parameter, True if some of its directions were called null although other gradients are close to rounding."""
    hidden: tuple[bool, ...]
    """Per parameter, True if it takes part in directions that are counted beyond the claim although their gradients are larger
    than those of the claimed ones: rounding hides what a move changes."""
    unread: Bool[Tensor, " move"]
    """Entries that no tested input reads and that are not claimed to be null."""
    without_gradient: Bool[Tensor, " move"]
    """Entries whose gradients are all exactly zero although moving them changes the output: a threshold, or a model that
    leaves autograd. Which combinations of them change nothing is not known."""
    refuted: float | None = field(default=None)
    """Change of the output along the claimed null space, if it exceeds rounding."""


def count(null: Float64[Tensor, "move null"], sizes: Sequence[int]) -> CountedNullSpace:
    """Count a null space per parameter."""
    redundant, absorbable, start = [], [], 0
    for size in sizes:
        place = slice(start, start + size)
        start += size
        values = svd(null[place])[1] if null.shape[1] else torch.zeros(0)
        absorbable.append(int((values > INSIDE).sum()))
        redundant.append(inside(null, place).shape[1] if absorbable[-1] else 0)
    return CountedNullSpace(null=null, redundant=tuple(redundant), absorbable=tuple(absorbable))


def jacobian(probe: Probe, cases: Cases, claimed: int = 0) -> tuple[Float64[Tensor, "row move"], int]:
    """Stack gradients: 16 more than directions that are not claimed to be null, from at least six cases, from more if an output
    is small or an entry is unread.

    Args:
        probe: the model.
        cases: points and inputs.
        claimed: dimension of a null space that moves have confirmed. Along it all rows are zero, so that no more are
            independent than there are other directions.

    Returns:
        The rows, and the number of cases used.
    """
    generator = torch.Generator().manual_seed(0)
    wanted = probe.tracked.size - claimed + _EXTRA_ROWS
    share = -(-wanted // _FEWEST_CASES)
    most = max(_UNREAD_CASES, cases.sweep) if cases.fresh else _FEWEST_CASES
    unread = torch.ones(probe.tracked.size, dtype=torch.bool)
    blocks: list[Tensor] = []
    number = count = 0
    while number < _FEWEST_CASES or count < wanted or (number < most and bool(unread.any())):
        point, inputs = cases(number)
        # One entry of a batch has fewer outputs and so a less exact null space. Beside a confirmed proof that is enough to
        # count; without one, rewrites use it. Later cases look for what the other entries may read.
        if claimed and number < _FEWEST_CASES:
            inputs = probe.first_of_batch(inputs, point)
        # Further cases only look for entries that nothing has read. One gradient of a random projection shows which are.
        searching = number >= _FEWEST_CASES and count >= wanted
        blocks.append(probe.finite_rows(inputs, point, 1 if searching else share, generator))
        read = unread & (blocks[-1] != 0).any(0)
        if searching and bool(read.any()):
            blocks.append(probe.finite_rows(inputs, point, int(read.sum()) + _EXTRA_ROWS, generator))
        unread &= ~read
        count = sum(map(len, blocks))
        number += 1
    return torch.cat(blocks), number


def estimate_null_space(
    probe: Probe, cases: Cases, claimed: Float64[Tensor, "move null"] | None = None
) -> NullSpaceEstimate:
    """Estimate the null space of all tracked parameters, and test a claimed one.

    Args:
        probe: the model.
        cases: points and inputs.
        claimed: the null space according to the static method, orthonormal columns.

    Cost: about n gradients of the model for n tracked scalars, less the dimension of the claim if moves confirm it, and one
    singular value decomposition of a matrix of them.
    """
    confirmed = 0
    if claimed is not None and claimed.shape[1]:
        first = [cases(each) for each in range(_FEWEST_CASES)]
        # Moves first: only a claim that no move refutes may reduce the number of gradients. A false claim would
        # otherwise make its own test smaller.
        confirmed = claimed.shape[1] if largest_effect(probe, first, claimed) <= probe.rounding(first) else 0
    rows, number = jacobian(probe, cases, confirmed)
    tried = [cases(each) for each in range(number)]
    rounding = probe.rounding(tried)
    _, computed, right = svd(rows, full_matrices=True)
    values = torch.zeros(probe.tracked.size, dtype=torch.float64)
    values[: len(computed)] = computed
    # Relative to the largest gradient, since rounding is. A model whose gradients span more digits than float64 has is
    # not decided here, but by moves and by `_confirmed_inside`.
    top = float(values.max()) or 1.0
    flat_below = 16 * torch.finfo(torch.float64).eps * probe.tracked.size**0.5 * top
    candidate = values <= flat_below
    if top <= rounding * len(rows) ** 0.5:  # the largest, too, is rounding: no gradient stands out to measure others by
        candidate = torch.ones_like(candidate)
    # Weak ones are listed for two reasons: an effect below float32 is reported as negligible, and a gradient may be
    # small where a move changes much, as near a threshold.
    weak = (values <= _WEAK * top) & ~candidate
    directions = right.T
    proved, refuted = directions[:, :0], None
    if claimed is not None and claimed.shape[1]:
        # All cases here, which may be more than the six that confirmed it: the claim has to hold wherever anything was
        # measured.
        worst = largest_effect(probe, tried, claimed)
        proved, refuted = (claimed, None) if worst <= rounding else (proved, worst)
    null, faint = _measured(probe, tried, directions[:, candidate], directions[:, weak], rounding, proved)
    flat = (rows == 0).all(0)
    # Exact zeros in every gradient and in every move: nothing read the entry, or it cancels without rounding. Either
    # way a count of it as free would confirm nothing.
    unread = flat & unit_coordinates(null)
    null = without_coordinates(null, unread)
    hidden = torch.zeros(probe.tracked.size, dtype=torch.bool)
    if proved.shape[1]:  # a proved and confirmed direction is null, however the other candidates were sorted
        further = sum_of(proved, beyond_claim(null, proved, unread))[:, proved.shape[1] :]
        # Beside directions whose gradients are small, the candidates are computed up to a small angle only. What they
        # have beyond the claim may be that angle, so each further direction is moved by itself.
        further, _ = _by_moves(probe, tried, further, rounding)
        null = torch.cat([proved, further], dim=1)
        # Of an entry that is proved and not refuted it does not matter whether inputs read it.
        unread &= ~unit_coordinates(proved)
        proved_to_be_zero = torch.linalg.vector_norm(rows @ proved, dim=0).max()
        # Gradients along proved directions are rounding. Clearly larger ones belong to an effect, which the moves
        # above were too coarse to show: the verdict says so instead of asking for a rule.
        steep = torch.linalg.vector_norm(rows @ further, dim=0) > _CLEAR * proved_to_be_zero
        hidden = (further[:, steep].abs() > INSIDE).any(1)
    # Moves change the output and no gradient shows it: joint moves of such entries were never searched.
    without_gradient = flat & ~unread & ~unit_coordinates(null)
    sizes = [entry.size for entry in probe.tracked.entries]
    null_and_faint = sum_of(null, faint)
    counted, counted_weak = count(null, sizes), count(null_and_faint, sizes)
    # A unit row of the Jacobian is uncertain by the output's rounding, and a sum of len(rows) squares by its root.
    floor = max(flat_below, rounding * len(rows) ** 0.5)
    places = [slice(entry.offset, entry.offset + entry.size) for entry in probe.tracked.entries]
    inside_own = [_confirmed_inside(probe, tried, rows, null, place, floor, rounding) for place in places]
    counted = replace(counted, redundant=tuple(own.shape[1] for own, _ in inside_own))
    effect = _effects(probe, tried, [own for own, _ in inside_own], counted_weak)
    return NullSpaceEstimate(
        counted=counted,
        counted_weak=counted_weak,
        effect=effect,
        rounding=rounding,
        unclear=tuple(bool(own.shape[1]) and not clear for own, clear in inside_own),
        hidden=tuple(bool(hidden[place].any()) for place in places),
        unread=unread,
        without_gradient=without_gradient,
        refuted=refuted,
    )


def _confirmed_inside(
    probe: Probe,
    cases: Sequence[Case],
    rows: Float64[Tensor, "row move"],
    null: Float64[Tensor, "move null"],
    place: slice,
    floor: float,
    rounding: float,
) -> tuple[Float64[Tensor, "entry redundant"], bool]:
    """The null directions inside one parameter whose own gradients, or whose moves, are rounding too; and whether the
    parameter's other gradients are clearly larger."""
    near = inside(null, place)
    if not near.shape[1]:
        return near, True
    _, values, right = svd(rows[:, place])
    zero = right[values <= floor].T
    # Two estimates of one space, from the joint Jacobian and from the parameter's own columns: directions that both
    # contain are kept as they are. What only the first contains may be a nearly null vector of the whole, so it has to
    # pass a move.
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


def largest_effect(probe: Probe, cases: Sequence[Case], basis: Float64[Tensor, "move direction"]) -> float:
    """Return the largest relative change of the output along random combinations of directions, with largest entry one."""
    generator = torch.Generator().manual_seed(1)
    worst = 0.0
    for _ in range(_COMBINATIONS if basis.shape[1] else 0):
        # Random combinations move all directions at once. Effects that cancel in one draw do not in three.
        move = basis @ torch.randn(basis.shape[1], generator=generator, dtype=torch.float64)
        worst = max(worst, probe.effect(cases, move / move.abs().max()))
    return worst


def _measured(
    probe: Probe, cases: Sequence[Case], candidate: Tensor, weak: Tensor, rounding: float, proved: Tensor
) -> tuple[Tensor, Tensor]:
    """Null and negligible directions among the candidate and weak ones, determined by finite moves. `proved` are null
    directions that moves have confirmed."""
    null = candidate
    suspects = weak
    if largest_effect(probe, cases, candidate) > rounding:
        # One direction with an effect spoils the combination, so each is measured by itself.
        null, rest = _without_proved(candidate, proved)
        suspects = torch.cat([rest, weak], dim=1)
    without_effect, faint = _by_moves(probe, cases, suspects, rounding)
    return sum_of(null, without_effect), faint


def _without_proved(candidate: Tensor, proved: Tensor) -> tuple[Tensor, Tensor]:
    """The proved directions among the candidates, and the other candidates."""
    # Beside small gradients the candidates are computed up to an angle, which gives them an effect, so that all of them
    # would be measured although most are proved; and with them all weak directions, because those that are proved never
    # change the output (`all_change_the_output`). Changes along proved directions are zero: they add nothing to the
    # singular values of the others. They are set aside only if all of them lie among the candidates, up to that angle,
    # and the other candidates are clearly apart; then the rest stays orthogonal to the weak directions.
    turned, sines, _ = svd(candidate - proved @ (proved.T @ candidate))
    apart = sines >= 1 - _TURNED
    if not proved.shape[1] or int((sines <= _TURNED).sum()) != proved.shape[1] or len(sines[~apart]) != proved.shape[1]:
        return candidate[:, :0], candidate
    return proved, turned[:, apart]


def _by_moves(probe: Probe, cases: Sequence[Case], suspects: Tensor, rounding: float) -> tuple[Tensor, Tensor]:
    """The null and the negligible directions of a space, by a unit move along each of its directions."""
    if all_change_the_output(probe, cases, suspects):
        return suspects[:, :0], suspects[:, :0]
    changes = torch.cat([_changes(probe, point, inputs, suspects) for point, inputs in cases])
    _, values, right = svd(changes, full_matrices=False)
    turned = suspects @ right.T
    without_effect = turned[:, values <= rounding]
    faint = turned[:, (values > rounding) & (values <= NEGLIGIBLE)]
    # Changes by a discontinuity do not add up, so the combinations are tested once more.
    if largest_effect(probe, cases, without_effect) > rounding:
        without_effect = without_effect[:, :0]
    if largest_effect(probe, cases, faint) > NEGLIGIBLE:
        faint = faint[:, :0]
    return without_effect, faint


def all_change_the_output(probe: Probe, cases: Sequence[Case], suspects: Float64[Tensor, "move direction"]) -> bool:
    """True if every direction of a space changes the output by more than float32 resolves, at one of the cases at least.

    The cases are gone through one after the other, and each only by what none before it has shown. A trained model has
    hundreds of weak directions; the first case shows most of them, and moving all of them at all cases would be most of an
    audit's time.

    Why nothing is lost: the singular vectors of the changes at one case are orthogonal in the space and in the output. A move
    along which all cases change little therefore has hardly a part along the vectors that are set aside here. What the last
    case leaves may still have such a part, so directions that are left are measured together with all others by the caller.
    """
    left = suspects
    for point, inputs in cases:
        if not left.shape[1]:
            break
        # One entry of a batch shows an effect as well as all do, for a fraction of the cost. The change is brought to
        # the scale of the whole batch, in which the limit is meant.
        one = probe.first_of_batch(inputs, point)
        share = probe.scale(one, point) / probe.scale(inputs, point)
        _, computed, right = svd(_changes(probe, point, one, left) * share, full_matrices=True)
        values = torch.zeros(left.shape[1], dtype=torch.float64)  # fewer outputs than directions leave zeros
        values[: len(computed)] = computed
        left = left @ right[values <= NEGLIGIBLE].T
    return not left.shape[1]


def _changes(probe: Probe, point: int, inputs: Inputs, space: Tensor) -> Float64[Tensor, "entry direction"]:
    """The changes of the output by a move along each direction of a space, per unit of the direction. The largest entry of a
    move is one; a change that is not finite counts as one."""
    columns = []
    for direction in space.T:
        size = direction.abs().max()
        # Moves of largest entry one, so that thresholds are tried at the same distance for every direction; per unit of
        # the direction, so that singular values compare them.
        columns.append(probe.change(inputs, point, direction / size) * size)
    changes = torch.stack(columns, dim=1)
    return torch.where(torch.isfinite(changes), changes, torch.ones((), dtype=torch.float64))


def _effects(
    probe: Probe, cases: Sequence[Case], own: Sequence[Tensor], weak: CountedNullSpace
) -> tuple[float | None, ...]:
    effects: list[float | None] = []
    sizes, start = [entry.size for entry in probe.tracked.entries], 0
    for size, null, num_weak in zip(sizes, own, weak.redundant, strict=True):
        place = slice(start, start + size)
        start += size
        if num_weak == null.shape[1]:
            effects.append(None)
            continue
        weak_or_null = inside(weak.null, place)
        rest = weak_or_null - null @ (null.T @ weak_or_null)
        move = torch.zeros(probe.tracked.size, rest.shape[1], dtype=torch.float64)
        move[place] = rest
        effects.append(largest_effect(probe, cases, move))
    return tuple(effects)
