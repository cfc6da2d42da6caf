"""Folds: the parameters that absorb a removed parameter, and the formulas of their changes.

The null space is represented by free vectors, each of which moves a few parameters (`NullSpace.maps`). To remove a
parameter means to choose free vectors that cancel it; the other parameters that they move absorb it. Among several
compensations, those that do not increase magnitudes much come first (they multiply by a weight where others need its
inverse), then those that move few parameters.

The formula is identified by comparing the change with the removed vector and with its products with the model's
weights. A change that no single weight gives is the solution of linear equations, and the formula says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from addnorm.redundancy.execution.tracked_parameters import TrackedParameter
from addnorm.redundancy.graph.null_space import Delta, NullSpace
from addnorm.redundancy.verdict.finding import Fold

_SAME = 1e-8
"""Relative difference up to which two float64 vectors from products with weights are the same."""
_LARGEST = 1024
"""Largest number of free coordinates for which a sparser compensation is searched: each takes a decomposition."""
_TOGETHER = 2**22
"""Numbers of weights that are multiplied at once."""
AMPLIFIED = 5.0
"""Amplification, the largest change relative to the removed numbers, above which a compensation is used only as a last
resort."""


@dataclass(frozen=True, kw_only=True)
class Compensation:
    """Changes of other parameters that cancel a change of one parameter."""

    moved: Delta
    """Changes of the others; empty if none is needed."""
    amplification: float
    vectors: int = 0
    """Number of free vectors combined."""

    @property
    def cost(self) -> tuple[bool, int, int, float]:
        """Order of preference; smaller is better."""
        return self.amplification > AMPLIFIED, len(self.moved), self.vectors, self.amplification


def compensations(space: NullSpace, entry: TrackedParameter, change: Tensor) -> Iterator[Compensation]:
    """Generate compensations for a change of one parameter within the null space: by the free vectors that move nothing
    else, by one of the others, by both, then by all together."""
    maps = space.maps[entry.name]
    wanted = change.reshape(-1)
    others = {block for name, blocks in space.maps.items() if name != entry.name for block in blocks}
    own = [block for block in maps if block not in others]
    shared = [block for block in maps if block in others]
    # A free vector that moves nothing else needs no fold at all. One other vector keeps the number of absorbing
    # parameters small; all together is the last resort, which spreads the change over everything that is coupled.
    chosen: list[Sequence[int]] = [own] if own else []
    chosen += [[block] for block in shared]
    chosen += [[*own, block] for block in shared if own]
    if len(shared) > 1:
        chosen.append(list(maps))
    for blocks in chosen:
        first = maps[blocks[0]]
        if len(blocks) == 1 and first.matrix is None and len(first.rows) == first.height:
            free = torch.zeros(first.width, dtype=torch.float64)
            free[torch.arange(first.width)] = wanted[first.rows]
        else:
            matrix = space.rows(entry.name, blocks)
            # gelsd takes singular values into account: the maps of several blocks may overlap, and then the least
            # change is wanted, not any.
            free = torch.linalg.lstsq(matrix, wanted[:, None], driver="gelsd").solution[:, 0]
            if float(torch.linalg.vector_norm(matrix @ free - wanted)) > _SAME * float(
                torch.linalg.vector_norm(wanted)
            ):
                continue
        yield _compensation(
            space, entry, wanted, dict(zip(blocks, free.split([space.sizes[block] for block in blocks]), strict=True))
        )


def _compensation(space: NullSpace, entry: TrackedParameter, wanted: Tensor, free: dict[int, Tensor]) -> Compensation:
    moved: Delta = {}
    for name, maps in space.maps.items():
        if name != entry.name and not maps.keys().isdisjoint(free):
            total = torch.zeros(space.tracked[name].size, dtype=torch.float64)
            for block in maps.keys() & free.keys():
                total += maps[block](free[block])
            # Rounding of the solution touches every coupled parameter; a change of that size does not count.
            if float(total.abs().max()) > _SAME * float(wanted.abs().max()):
                moved[name] = total.reshape(space.tracked[name].coordinate_shape)
    largest = max((float(each.abs().max()) for each in moved.values()), default=0.0)
    return Compensation(moved=moved, amplification=largest / float(wanted.abs().max()), vectors=len(free))


def sparser(space: NullSpace, entry: TrackedParameter, change: Tensor, compensation: Compensation) -> Compensation:
    """Return a compensation that moves fewer parameters, by adding free vectors that move no further ones; the same one
    if there is none."""
    names = {entry.name, *compensation.moved}
    touched: dict[int, set[str]] = {}
    for name, maps in space.maps.items():
        for block in maps:
            touched.setdefault(block, set()).add(name)
    # Vectors that move a further parameter are left out: they could spare one only by burdening another.
    blocks = [block for block, moved in touched.items() if moved <= names]
    widths = [space.sizes[block] for block in blocks]
    if len(compensation.moved) < 2 or not blocks or sum(widths) > _LARGEST:
        return compensation

    best = compensation
    wanted = change.reshape(-1)
    for spared in compensation.moved:
        system = torch.cat([space.rows(entry.name, blocks), space.rows(spared, blocks)])
        # The same removal, with this parameter held.
        target = torch.cat([wanted, torch.zeros(space.tracked[spared].size, dtype=torch.float64)])
        free = torch.linalg.lstsq(system, target[:, None], driver="gelsd").solution[:, 0]
        if float(torch.linalg.vector_norm(system @ free - target)) > _SAME * float(torch.linalg.vector_norm(wanted)):
            continue
        parts = free.split(widths)
        candidate = _compensation(space, entry, wanted, dict(zip(blocks, parts, strict=True)))
        best = min(best, candidate, key=lambda each: each.cost)
    return best if best is compensation else sparser(space, entry, change, best)


class Folds:
    """The parameters that absorb others, with their formulas."""

    def __init__(self, model: nn.Module, space: NullSpace) -> None:
        """Take the null space, and the model with the weights at which it was computed."""
        self._space = space
        self._factors: dict[tuple[int, ...], list[tuple[str, Tensor]]] = {}
        for name, weight in model.named_parameters():
            if not weight.is_complex():
                self._factors.setdefault(tuple(weight.shape[:2]), []).append((name, weight.detach()))
            if weight.dim() == 2 and not weight.is_complex():
                self._factors.setdefault(tuple(weight.shape[::-1]), []).append((f"{name}.T", weight.detach().T))

    @cached_property
    def _drawn(self) -> Delta:
        # A random null vector, not the present numbers: a formula must hold for all of them, and a bias of zeros would
        # show none.
        return self._space.sample(torch.Generator().manual_seed(4))

    def of(self, entry: TrackedParameter) -> tuple[Fold, ...]:
        """List the parameters that absorb one parameter."""
        space, drawn = self._space, self._drawn.get(entry.name)
        if drawn is None:
            return ()
        best = min(compensations(space, entry, -drawn), key=lambda each: each.cost, default=None)
        if best is None:
            return ()
        best = sparser(space, entry, -drawn, best)
        own = space.redundant(entry.name)
        removed = drawn.reshape(-1)
        # Redundant directions need no compensation.
        given = (removed, removed - own.T @ (own @ removed)) if len(own) else (removed,)
        formulas = {
            name: self._formula(entry.name, given, change.reshape(-1), space.redundant(name))
            for name, change in best.moved.items()
        }
        solved = f"+= a linear map of {entry.name}, solved from the weights between them"
        sizes = {name: float(change.abs().max() / drawn.abs().max()) for name, change in best.moved.items()}
        return tuple(
            Fold(into=name, formula=f"{name} {formula or solved}", amplification=sizes[name], solved=not formula)
            for name, formula in formulas.items()
        )

    def _formula(self, name: str, given: Sequence[Tensor], change: Tensor, free: Tensor) -> str:
        # Up to redundant directions of the absorbing parameter, rows of `free`.
        def effective(vectors: Tensor) -> Tensor:
            return vectors - (vectors @ free.T) @ free if len(free) and vectors.shape[1] == len(change) else vectors

        target = effective(change[None])[0]
        # The simple forms first, up to what cannot matter in the absorbing parameter; a product with one weight is what a
        # person would write.
        for removed in given:
            for _, factor in _multiples(effective(removed[None]), target):
                return f"{_sign(factor)} {_times(factor)}{name}"
        for names, products in (pair for removed in given for pair in self._products(removed, len(change))):
            for row, factor in _multiples(effective(products), target):
                return f"{_sign(factor)} {_times(factor)}{names[row]} @ {name}"
        return ""

    def _products(self, removed: Tensor, height: int) -> Iterator[tuple[Sequence[str], Tensor]]:
        """Weights of matching shape, and their products with the removed vector, [weight, height]."""
        # Many small ones are multiplied at once: there are as many as layers, for each of as many parameters.
        if len(removed) == height and (vectors := self._factors.get((height,))):
            yield (
                [f"diag({name})" for name, _ in vectors],
                torch.stack([each for _, each in vectors]).double() * removed,
            )
        matrices = self._factors.get((height, len(removed)), ())
        together = max(1, _TOGETHER // (height * len(removed)))
        for first in range(0, len(matrices), together):
            names, weights = zip(*matrices[first : first + together], strict=True)
            # A kernel applied to a constant sums over its positions.
            sums = [each.double().flatten(2).sum(2) if each.dim() > 2 else each.double() for each in weights]
            yield names, torch.stack(sums) @ removed


def _multiples(bases: Tensor, change: Tensor) -> Iterator[tuple[int, float]]:
    """The rows of which a vector is a multiple, each with the factor."""
    if bases.shape[1:] == change.shape:
        squares = bases.square().sum(1)
        factors = (bases @ change) / squares
        rest = torch.linalg.vector_norm(change - factors[:, None] * bases, dim=1)
        near = (squares > 0) & (factors != 0) & (rest <= _SAME * torch.linalg.vector_norm(change))
        yield from ((row, float(factors[row])) for row in near.nonzero().flatten().tolist())


def _sign(factor: float) -> str:
    return "+=" if factor > 0 else "-="


def _times(factor: float) -> str:
    return "" if abs(abs(factor) - 1) <= _SAME else f"{abs(factor):.6g} * "
