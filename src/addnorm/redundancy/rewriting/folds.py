"""Folds: the parameters that absorb a removed parameter, and the formulas of their changes.

The null space is represented by free vectors, each of which moves a few parameters (`NullSpace.maps`). To remove a
parameter means to choose free vectors that cancel it; the other parameters that they move absorb it. Among several
compensations, those that do not increase magnitudes much come first (they multiply by a weight where others need its
inverse), then those that move few parameters.

The formula is identified by comparing the change with the removed vector and with its products with the model's
weights. A change that no single weight gives is the solution of linear equations, and the formula says so.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.redundancy.execution.tracked_parameters import TrackedParameter
from addnorm.redundancy.graph.null_space import Delta, NullSpace
from addnorm.redundancy.verdict.finding import Fold

_SAME = 1e-8
"""Relative difference up to which two float64 vectors from products with weights are the same."""
_LARGEST = 1024
"""Largest number of free coordinates for which a sparser compensation is searched: each takes a decomposition."""
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


def folds(model: nn.Module, space: NullSpace, entry: TrackedParameter) -> tuple[Fold, ...]:
    """List the parameters that absorb one parameter, with their formulas.

    Args:
        model: the model with the weights at which `space` was computed.
        space: the null space.
        entry: the parameter.
    """
    # A random null vector, not the present numbers: a formula must hold for all of them, and a bias of zeros would show
    # none.
    drawn = space.sample(torch.Generator().manual_seed(4)).get(entry.name)
    if drawn is None:
        return ()
    best = min(compensations(space, entry, -drawn), key=lambda each: each.cost, default=None)
    if best is None:
        return ()
    best = sparser(space, entry, -drawn, best)
    weights = dict(model.named_parameters())
    own = space.redundant(entry.name)
    removed = drawn.reshape(-1)
    # Redundant directions need no compensation.
    given = (removed, removed - own.T @ (own @ removed)) if len(own) else (removed,)
    listed = []
    for name, change in best.moved.items():
        formula = _formula(weights.items(), entry.name, given, change.reshape(-1), space.redundant(name))
        listed.append(
            Fold(
                into=name,
                formula=f"{name} {formula or f'+= a linear map of {entry.name}, solved from the weights between them'}",
                amplification=float(change.abs().max() / drawn.abs().max()),
                solved=not formula,
            )
        )
    return tuple(listed)


def _formula(
    weights: Iterable[tuple[str, Tensor]], name: str, given: Sequence[Tensor], change: Tensor, free: Tensor
) -> str:
    def effective(vector: Tensor) -> Tensor:  # up to redundant directions of the absorbing parameter, rows of `free`
        return vector - free.T @ (free @ vector) if len(free) and vector.shape == change.shape else vector

    target = effective(change)
    # The simple forms first, up to what cannot matter in the absorbing parameter; a product with one weight is what a
    # person would write.
    for removed in given:
        if (factor := _multiple(effective(removed), target)) is not None:
            return f"{_sign(factor)} {_times(factor)}{name}"
    for weight, product in (pair for removed in given for pair in _products(weights, removed, len(change))):
        if (factor := _multiple(effective(product), target)) is not None:
            return f"{_sign(factor)} {_times(factor)}{weight} @ {name}"
    return ""


def _products(weights: Iterable[tuple[str, Tensor]], removed: Tensor, height: int) -> Iterator[tuple[str, Tensor]]:
    """Products of the removed vector with every weight of matching shape."""
    for name, weight in weights:
        shape = weight.shape
        if weight.is_complex():
            continue
        if weight.dim() == 1 and shape[0] == len(removed) == height:
            yield f"diag({name})", weight.detach().double() * removed
        if weight.dim() < 2:
            continue
        if shape[0] == height and shape[1] == len(removed):  # a kernel applied to a constant sums over its positions
            matrix = weight.detach().double()
            yield name, (matrix.flatten(2).sum(2) if matrix.dim() > 2 else matrix) @ removed
        if weight.dim() == 2 and shape[1] == height and shape[0] == len(removed):
            yield f"{name}.T", weight.detach().double().T @ removed


def _multiple(base: Tensor, change: Tensor) -> float | None:
    """The factor between two vectors; None if they are not multiples of each other."""
    if base.shape != change.shape or not bool(base.any()):
        return None
    factor = float(base @ change / (base @ base))
    near = float(torch.linalg.vector_norm(change - factor * base)) <= _SAME * float(torch.linalg.vector_norm(change))
    return factor if near and factor else None


def _sign(factor: float) -> str:
    return "+=" if factor > 0 else "-="


def _times(factor: float) -> str:
    return "" if abs(abs(factor) - 1) <= _SAME else f"{abs(factor):.6g} * "
