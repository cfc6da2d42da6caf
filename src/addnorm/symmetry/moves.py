"""Finite moves: weights carried along a proven direction, exactly, and the check that no output changes."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from scipy import linalg
from torch import Tensor, nn

from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe, ObservedNumbers
from addnorm.redundancy.rewriting.output_difference import flat_outputs, floats_changed, integers_changed
from addnorm.symmetry.actions.equations import ZERO, Ids, Numbers
from addnorm.symmetry.actions.propagation import Propagation
from addnorm.symmetry.actions.uses import Derived, MapUse, ShiftUse, Use
from addnorm.symmetry.structure import Direction

_TERMS = 80
_ITERATIONS = 40
SAME = 1e-9
"""Largest relative difference of outputs in float64 after a move."""
_UNUSED = 1000
"""Number of the first case that no analysis uses."""


def carried(
    propagation: Propagation, weights: dict[str, Tensor], direction: Direction, amount: float, *, straight: bool = False
) -> dict[str, Tensor]:
    """Return the weights at the end of a move.

    Args:
        propagation: the equations at these weights.
        weights: float64 parameters, by name.
        direction: a proven direction at these weights.
        amount: length of the move; its largest action is scaled to 1 first.
        straight: along the tangent, not along the flow of the actions.
    """
    system = propagation.system
    generator = np.zeros(system.equations.count)
    generator[direction.generator.indices] = direction.generator.data
    generator *= amount / np.abs(generator).max()
    start = np.zeros(len(generator))
    for name, ids in propagation.tangents.items():
        start[ids] = weights[name].detach().numpy()
    if straight:
        return {
            name: torch.from_numpy(start[ids] + generator[ids]).reshape(weights[name].shape)
            for name, ids in propagation.tangents.items()
        }
    for each in system.derived:
        start[each.made] = each.function(_sources(each.sources, each.numbers, torch.from_numpy(start))).numpy()
    moved, known = _series(system.uses, generator, start)
    base = np.concatenate([ids.reshape(-1) for ids in propagation.tangents.values()])
    free = base[~known[base]]
    moved[free] = start[free] + generator[free]
    if system.derived:
        _solve_derived(propagation, moved, known, free, generator)
    return {
        name: torch.from_numpy(np.asarray(moved[ids])).reshape(weights[name].shape)
        for name, ids in propagation.tangents.items()
    }


def _series(uses: Iterable[Use], generator: Numbers, start: Numbers) -> tuple[Numbers, np.ndarray]:
    """The power series of the flow. Returns the weights, and which of them a use moves."""

    def of(ids: Ids) -> Numbers:
        return np.where(ids == ZERO, 0.0, generator[ids])

    owned: list[tuple[Use, list[np.ndarray]]] = []
    known = np.zeros(len(start), bool)
    for use in uses:
        masks = []
        for ids in (use.weight, use.bias) if isinstance(use, MapUse) else (use.weight,):
            new = (ids != ZERO) & ~known[ids]
            known[ids[new]] = True
            masks.append(new)
        if any(mask.any() for mask in masks) and _active(use, of):
            owned.append((use, masks))
    total, term = start.copy(), start
    for order in range(1, _TERMS):
        is_first = order == 1

        def point(ids: Ids, given: Numbers, term: Numbers = term, is_first: bool = is_first) -> Numbers:
            return np.where(ids == ZERO, given if is_first else 0.0, term[ids])

        following = np.zeros(len(start))
        for use, masks in owned:
            for mask, (ids, numbers) in zip(masks, use.flow(of, point, affine=is_first), strict=True):
                following[ids[mask]] = numbers[mask] / order
        total += following
        term = following
        if np.abs(term).max(initial=0) < 1e-18:
            break
    return total, known


def _active(use: Use, of: object) -> bool:
    parts: list[Ids]
    if isinstance(use, MapUse):
        parts = [
            use.before.linear,
            use.before.shift,
            use.linear,
            use.shift,
            *(each for each, _ in use.sources),
            *(each for each, _ in use.multiples),
        ]
    elif isinstance(use, ShiftUse):
        parts = [use.before.linear, use.before.shift, use.after, np.array([use.source])]
    else:
        parts = [use.before, use.after]
    return any(bool(of(each).any()) for each in parts)  # type: ignore[operator]


def _sources(ids: tuple[Ids, ...], numbers: tuple[Tensor, ...], point: Tensor) -> tuple[Tensor, ...]:
    return tuple(
        torch.where(torch.from_numpy(np.asarray(each != ZERO)), point[torch.from_numpy(np.asarray(each))], number)
        for each, number in zip(ids, numbers, strict=True)
    )


def _touched(derived: list[Derived], generator: Numbers) -> list[Derived]:
    """The weights computed from others that a direction moves or of which it moves a source, and all that share sources."""
    ids = [np.unique(np.concatenate([part.reshape(-1) for part in (each.made, *each.sources)])) for each in derived]
    ids = [each[each != ZERO] for each in ids]
    reached, before = generator != 0, -1
    while (count := int(reached.sum())) != before:
        before = count
        for each in ids:
            reached[each] |= reached[each].any()
    return [each for each, own in zip(derived, ids, strict=True) if reached[own].any()]


def _solve_derived(propagation: Propagation, moved: Numbers, known: np.ndarray, free: Ids, generator: Numbers) -> None:
    """Find the weights from which those computed by the model come out as they should, by Newton's method, in place.

    What no use moves, such as a learned bias of scores, stays as it is if it is to stay to first order.
    """
    derived = _touched(propagation.system.derived, generator)
    if not derived:
        return
    sources = np.unique(np.concatenate([ids.reshape(-1) for each in derived for ids in each.sources]))
    unknown = np.intersect1d(sources, free)
    made = np.unique(np.concatenate([each.made.reshape(-1) for each in derived]))
    wanted = made[known[made] | ((generator[made] == 0) & ~np.isin(made, sources))]
    wanted = wanted[np.isfinite(moved[wanted])]  # a mask may be among what is computed
    if not len(unknown) or not len(wanted):
        return
    fixed, target = torch.from_numpy(moved), torch.from_numpy(moved[wanted])
    # Each by its own size: beside a score of -1e38, which masks, the rest of a weight would count as rounding.
    size = 1 + target.abs()
    at, places = torch.from_numpy(unknown), torch.from_numpy(wanted)

    def missed(values: Tensor) -> Tensor:
        point = fixed.clone().index_put((at,), values)
        for each in derived:
            result = each.function(_sources(each.sources, each.numbers, point))
            point = point.index_put((torch.from_numpy(each.made.reshape(-1)),), result.reshape(-1))
        return (point[places] - target) / size

    values = torch.from_numpy(moved[unknown])
    for _ in range(_ITERATIONS):
        error = missed(values)
        if float(error.abs().max()) < 1e-15:
            break
        slope = torch.autograd.functional.jacobian(missed, values, vectorize=True)
        values = values - torch.from_numpy(linalg.lstsq(slope.numpy(), error.numpy())[0])
    moved[unknown] = values.detach().numpy()


@dataclass(frozen=True)
class Comparison:
    """Outputs of a model at inputs and lengths that the analysis did not use."""

    model: nn.Module
    """A copy in float64."""
    inputs: tuple[Inputs, ...]
    observe: Observe
    expected: tuple[ObservedNumbers, ...]

    @classmethod
    def of(cls, model: nn.Module, cases: Cases, observe: Observe) -> "Comparison":
        """Run the model before any move."""
        numbers = range(_UNUSED, _UNUSED + max(2, len(cases.templates))) if cases.fresh else range(1)
        made = cls(copy.deepcopy(model), tuple(cases(each)[1] for each in numbers), observe, ())
        return cls(made.model, made.inputs, observe, made.outputs({}))

    def outputs(self, weights: dict[str, Tensor]) -> tuple[ObservedNumbers, ...]:
        """The outputs with other weights."""
        parameters = dict(self.model.named_parameters())
        before = {name: parameters[name].detach().clone() for name in weights}
        try:
            with torch.no_grad():
                for name, each in weights.items():
                    parameters[name].copy_(each)
                return tuple(flat_outputs(self.model, self.inputs, self.observe, Float64Mode()))
        finally:
            with torch.no_grad():
                for name, each in before.items():
                    parameters[name].copy_(each)

    def moved(
        self, propagation: Propagation, weights: dict[str, Tensor], direction: Direction, amount: float
    ) -> tuple[dict[str, Tensor], float]:
        """Return the weights at the end of a move, and the difference of outputs: along the flow, or else the straight line.

        Of a tied table the flow moves what the one side adds by what the other side multiplies: two additive moves that are
        exact together are then so to first order alone, and exact along their straight line.
        """
        best: tuple[dict[str, Tensor], float] = {}, float("inf")
        for is_straight in (False, True):
            after = carried(propagation, weights, direction, amount, straight=is_straight)
            difference = self.difference(after)
            if not best[0] or difference < best[1]:
                best = after, difference
            if difference < SAME:
                break
        return best

    def difference(self, weights: dict[str, Tensor]) -> float:
        """The largest difference of outputs, relative to their root mean square; infinity where integers differ."""
        made = self.outputs(weights)
        return float("inf") if integers_changed(made, self.expected) else floats_changed(made, self.expected)
