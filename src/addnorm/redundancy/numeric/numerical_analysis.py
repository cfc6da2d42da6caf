"""The numerical method: counts per parameter where the null space is small enough, otherwise tests of the static
method's claim."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb

import torch
from jaxtyping import Bool, Float64
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.redundancy.algebra.linear_map import LinearMap, dense
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.execution.tracked_parameters import TrackedParameter, TrackedParameters
from addnorm.redundancy.graph.null_space import NullSpace
from addnorm.redundancy.numeric.null_space_estimate import Case, NullSpaceEstimate, estimate_null_space, largest_effect
from addnorm.redundancy.numeric.probe import NotDifferentiable, Probe
from addnorm.redundancy.numeric.subspaces import INSIDE, combinations_inside, complement

COUNTED_ALONE = 4096
"""Largest number of scalars for which the numerical method counts a null space when the static method did not run."""
COUNTED_WITH_PROOF = 1024
"""Largest number of scalars for which it counts although the static method ran; above, it only tests the claim. A count costs
n gradients and O(n³) operations."""
_GRADIENTS = 8
_MOST_SETS = 1500
"""Largest number of parameter sets of one size that are tried."""
_APART = 1e-3
"""Least sine between a null vector of few parameters and those before it. Null vectors are measured, where gradients are weak
only to some 1e-6: a nearer one would add that error as a direction, in place of a true one."""


@dataclass(frozen=True, kw_only=True)
class NumericalAnalysis:
    """Results of the numerical method, per parameter in the order of `TrackedParameters.entries`."""

    counted: bool
    """True if it counted a null space; False if it only tested the static method's claim."""
    space: NullSpace | None
    """The counted null space if the static method did not run."""
    redundant: tuple[int | None, ...]
    absorbable: tuple[int | None, ...]
    negligible: tuple[int, ...]
    effect: tuple[float | None, ...]
    refuted: tuple[float | None, ...]
    """Change of the output along a claimed null direction that moves this parameter, if it exceeds rounding."""
    unmoved: tuple[bool, ...]
    """True if moving the parameter along the directions not claimed redundant changed nothing, so that the claim may be
    too small."""
    unclear: tuple[bool, ...]
    """True if the parameter's gradients decrease gradually to rounding, so that its redundant directions cannot be
    counted."""
    hidden: tuple[bool, ...]
    """True if it takes part in directions whose gradients are not zero but whose effect rounding hides."""
    unread: tuple[int, ...]
    """Number of entries that no tested input reads and that are not claimed to be null. Above the limit of a count, of
    parameters without any effect alone."""
    without_gradient: tuple[int, ...]
    """Number of entries whose gradients are zero although moving them changes the output."""
    rounding: float
    joint: int | None


def analyse(
    model: nn.Module,
    inputs: Inputs,
    tracked: TrackedParameters,
    observe: Observe,
    claim: NullSpace | None,
    *,
    limit: int,
) -> tuple[NumericalAnalysis, Cases]:
    """Analyse a model numerically.

    Args:
        model: a copy in float64, used only here.
        inputs: example inputs.
        tracked: the tracked parameters.
        observe: the observed output.
        claim: the null space of the static method; None if it did not run.
        limit: number of scalars up to which the null space is counted. Above it the claim is tested or, without a
            claim, parameters without any effect are identified.

    Returns:
        The results, and the inputs that were tried.

    Raises:
        InputError: the inputs do not fit the model.
        NotDifferentiable: autograd fails on the model.
    """
    cases = Cases.of(model, inputs, observe)
    probe = Probe(model, tracked, observe)
    if tracked.size <= limit:
        try:
            return count_null_space(probe, cases, claim), cases
        except NotDifferentiable:
            if claim is None:
                raise
            # What gradients do not show, moves still test: no claim is believed unseen.
    return (check_claim(probe, cases, claim) if claim is not None else find_unused(probe, cases)), cases


def null_space_at_weights(model: nn.Module, inputs: Inputs, tracked: TrackedParameters, observe: Observe) -> NullSpace:
    """Count the null space of a copy in float64 at its own weights, for a model that does not export.

    Raises:
        InputError: it has more scalars than the numerical method counts.
    """
    if tracked.size > COUNTED_ALONE:
        raise InputError(
            f"a rewrite needs the whole null space: expected an exportable model or at most {COUNTED_ALONE} tracked scalars, "
            f"got {tracked.size} in a model that does not export. Audit a smaller configuration of the same class."
        )
    analysis, _ = analyse(model, inputs, tracked, observe, None, limit=COUNTED_ALONE)
    assert analysis.space is not None
    return analysis.space


def count_null_space(probe: Probe, cases: Cases, claim: NullSpace | None) -> NumericalAnalysis:
    """Count the null space independently of the static method, and test the static method's claim on the same
    inputs."""
    tracked = probe.tracked
    claimed = _orthonormal_columns(claim) if claim is not None else None
    estimate = estimate_null_space(probe, cases, claimed)
    refuted: tuple[float | None, ...] = (None,) * len(tracked.entries)
    if estimate.refuted is not None and claim is not None:
        refuted = _localised(probe, [cases(number) for number in range(6)], claim, estimate.rounding)
    return NumericalAnalysis(
        counted=True,
        space=_sparse_null_space(tracked, estimate.counted.null) if claim is None else None,
        redundant=estimate.counted.redundant,
        absorbable=estimate.counted.absorbable,
        negligible=_negligible(estimate),
        effect=estimate.effect,
        refuted=refuted,
        unmoved=(False,) * len(tracked.entries),
        unclear=estimate.unclear,
        hidden=estimate.hidden,
        unread=_per_parameter(estimate.unread, tracked),
        without_gradient=_per_parameter(estimate.without_gradient, tracked),
        rounding=estimate.rounding,
        joint=estimate.counted.joint,
    )


def check_claim(probe: Probe, cases: Cases, claim: NullSpace) -> NumericalAnalysis:
    """Test a claimed null space that is too large to count.

    The parameters are moved along random null vectors of the claim, which move every parameter that is claimed to be
    free, and the gradient of each parameter is measured along the directions that are not claimed to be redundant.
    """
    tracked = probe.tracked
    tried = [cases(number) for number in range(3)]
    rounding = probe.rounding(tried[:1])
    generator = torch.Generator().manual_seed(2)
    refuted: tuple[float | None, ...] = (None,) * len(tracked.entries)
    move = tracked.flatten(claim.sample(generator))
    if claim.dim and probe.effect(tried, move / move.abs().max()) > rounding:
        refuted = _localised(probe, tried, claim, rounding)
    # A gradient beyond rounding proves an effect. Only where none is seen, a move decides: gradients vanish at
    # thresholds and outside of autograd.
    rows, moved = _moved_by_gradients(probe, tried[:2], claim, rounding, generator)
    unmoved = []
    unread = []
    without_gradient = []
    for entry, beyond in zip(tracked.entries, moved, strict=True):
        proved = claim.redundant(entry.name)
        zero_columns = (rows[:, entry.offset : entry.offset + entry.size] == 0).all(0)
        # Of a parameter with an effect it does not matter how many entries nothing read.
        undecided = not beyond and len(proved) < entry.size
        unread.append(int(zero_columns.sum()) if undecided else 0)
        if not undecided:
            unmoved.append(False)
            without_gradient.append(0)
            continue
        off_claim = torch.zeros(tracked.size, 1, dtype=torch.float64)
        drawn = torch.randn(entry.size, generator=generator, dtype=torch.float64)
        off_claim[entry.offset : entry.offset + entry.size, 0] = drawn - proved.T @ (proved @ drawn)
        unmoved.append(largest_effect(probe, tried, off_claim) <= rounding)
        without_gradient.append(0 if unmoved[-1] else int(zero_columns.sum()))
    uncounted = (None,) * len(tracked.entries)
    return NumericalAnalysis(
        counted=False,
        space=None,
        redundant=uncounted,
        absorbable=uncounted,
        negligible=(0,) * len(tracked.entries),
        effect=uncounted,
        refuted=refuted,
        unmoved=tuple(unmoved),
        unclear=(False,) * len(tracked.entries),
        hidden=(False,) * len(tracked.entries),
        unread=tuple(unread),
        without_gradient=tuple(without_gradient),
        rounding=rounding,
        joint=None,
    )


def _moved_by_gradients(
    probe: Probe, cases: Sequence[Case], claim: NullSpace, rounding: float, generator: torch.Generator
) -> tuple[Float64[Tensor, "projection move"], tuple[bool, ...]]:
    """Gradients of random projections of the output, and per parameter, True if they exceed rounding along the directions
    that are not claimed to be redundant.

    One gradient decides this for nearly every parameter. More are computed only if one is left, since more gradients can
    show further effects and cannot take one back.
    """
    entries = probe.tracked.entries

    def moved(rows: Tensor, entry: TrackedParameter) -> bool:
        gradients = rows[:, entry.offset : entry.offset + entry.size]
        proved = claim.redundant(entry.name)
        rest = gradients - (gradients @ proved.T) @ proved if len(proved) else gradients
        return len(proved) < entry.size and float(torch.linalg.vector_norm(rest, dim=1).max()) > rounding

    point, inputs = cases[0]
    rows = probe.rows(inputs, point, 1, generator, at_once=1)
    by_one = tuple(moved(rows, entry) for entry in entries)
    if all(each or len(claim.redundant(entry.name)) == entry.size for each, entry in zip(by_one, entries, strict=True)):
        return rows, by_one
    more = [probe.rows(inputs, point, _GRADIENTS, generator, at_once=1) for point, inputs in cases]
    rows = torch.cat([rows, *more])
    return rows, tuple(moved(rows, entry) for entry in entries)


def find_unused(probe: Probe, cases: Cases) -> NumericalAnalysis:
    """Identify the parameters that have no effect at all, without a claim and without counting."""
    entries = probe.tracked.entries
    empty_claim = check_claim(probe, cases, NullSpace(probe.tracked, {}))
    # A gradient of exactly zero belongs to a number that was not read: cancellation leaves rounding errors.
    unused = [unmoved and not unread for unmoved, unread in zip(empty_claim.unmoved, empty_claim.unread, strict=True)]
    counts = tuple(entry.size if each else None for entry, each in zip(entries, unused, strict=True))
    return replace(empty_claim, redundant=counts, absorbable=counts)


def _orthonormal_columns(claim: NullSpace) -> Float64[Tensor, "move null"]:
    rows = claim.basis()
    return torch.linalg.qr(rows.T).Q if len(rows) else rows.T


def _per_parameter(marked: Bool[Tensor, " move"], tracked: TrackedParameters) -> tuple[int, ...]:
    return tuple(int(marked[each.offset : each.offset + each.size].sum()) for each in tracked.entries)


def _negligible(estimate: NullSpaceEstimate) -> tuple[int, ...]:
    pairs = zip(estimate.counted.redundant, estimate.counted_weak.redundant, strict=True)
    return tuple(weak - strict for strict, weak in pairs)


def _localised(probe: Probe, cases: Sequence[Case], claim: NullSpace, rounding: float) -> tuple[float | None, ...]:
    """Determine which parameters a refuted claim concerns: test whole components, then each parameter's own
    directions."""
    tracked = probe.tracked
    refuted: dict[str, float] = {}
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
            # A refuted component concerns all its parameters, except those whose own directions, moved alone, hold: the
            # proof of these does not depend on the others.
            if len(own) < entry.size or largest_effect(probe, cases, alone) > rounding:
                refuted[name] = worst
    return tuple(refuted.get(entry.name) for entry in tracked.entries)


def _sparse_null_space(tracked: TrackedParameters, null: Float64[Tensor, "move null"]) -> NullSpace:
    """A null space as free vectors that move one, two or three parameters wherever such vectors exist.

    A basis from a singular value decomposition moves all parameters at once, which does not show which one folds into
    which. Here the null vectors inside one parameter are separated first, then those inside two, then three; the rest
    stays as it is.
    """
    places = {each.name: torch.arange(each.offset, each.offset + each.size) for each in tracked.entries}
    maps: dict[str, dict[int, LinearMap]] = {name: {} for name in places}
    separated = torch.zeros(null.shape[1], 0, dtype=torch.float64)
    block = 0
    moving = [name for name, rows in places.items() if null.shape[1] and float(null[rows].abs().max()) > INSIDE]
    for size in (1, 2, 3):
        if comb(len(moving), size) > _MOST_SETS:
            break
        for names in combinations(moving, size):
            if separated.shape[1] == null.shape[1]:
                break
            inside = combinations_inside(null, torch.cat([places[name] for name in names]))
            # Vectors inside fewer parameters are combinations here too; only what they do not span is new.
            new = complement(inside, separated, _APART)
            if not new.shape[1]:
                continue
            _add_free_vectors(maps, block, null @ new, {name: places[name] for name in names})
            block += 1
            separated = torch.linalg.qr(torch.cat([separated, new], dim=1)).Q
    rest = complement(torch.eye(null.shape[1], dtype=torch.float64), separated)
    if rest.shape[1]:
        _add_free_vectors(maps, block, null @ rest, {name: places[name] for name in moving})
    return NullSpace(tracked, maps)


def _add_free_vectors(
    maps: dict[str, dict[int, LinearMap]], block: int, columns: Tensor, places: dict[str, Tensor]
) -> None:
    for name, rows in places.items():
        if float(columns[rows].abs().max()) > INSIDE:
            maps[name][block] = dense(len(rows), columns[rows])
