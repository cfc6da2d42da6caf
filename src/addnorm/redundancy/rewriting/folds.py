"""What takes over a parameter that can be removed, and the formula by which it does.

The null space is kept as free vectors, each of which moves a few parameters (`Space.maps`). Removing a parameter means
choosing the free vectors that undo it; the other parameters that they move take it over. Among several ways, one that makes
no number much larger comes first (it multiplies by a weight where another would need its inverse), then one that moves few.

The formula is read off by comparing what is added with the removed numbers themselves and with their products with the model's
own weights; what no single weight explains is a solution of linear equations and is called so.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.redundancy.execution.tracked_parameters import Entry
from addnorm.redundancy.finding import Fold
from addnorm.redundancy.graph.joint_space import Delta, Space

_SAME = 1e-8
"""Relative difference up to which two float64 vectors from products with weights are the same."""
_LARGEST = 1024
"""Free numbers up to which a way is searched for that moves fewer parameters: it takes a decomposition each."""
AMPLIFIED = 5.0
"""A fold that makes numbers larger than this, relative to what it removes, is the last resort."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to undo a change of one parameter."""

    moved: Delta
    """What the others change by; empty where nothing has to."""
    amplification: float
    vectors: int = 0
    """Free vectors combined."""

    @property
    def cost(self) -> tuple[bool, int, int, float]:
        """Smaller is better."""
        return self.amplification > AMPLIFIED, len(self.moved), self.vectors, self.amplification


def ways(space: Space, entry: Entry, change: Tensor) -> Iterator[Way]:
    """Ways to change one parameter as wanted within the null space: by the free vectors that move nothing else, by one other of
    them, by both, then by all together."""
    mine = space.maps[entry.name]
    wanted = change.reshape(-1)
    others = {block for name, maps in space.maps.items() if name != entry.name for block in maps}
    own = [block for block in mine if block not in others]
    shared = [block for block in mine if block in others]
    chosen: list[Sequence[int]] = [own] if own else []
    chosen += [[block] for block in shared]
    chosen += [[*own, block] for block in shared if own]
    if len(shared) > 1:
        chosen.append(list(mine))
    for blocks in chosen:
        first = mine[blocks[0]]
        if len(blocks) == 1 and first.matrix is None and len(first.rows) == first.height:
            free = torch.zeros(first.width, dtype=torch.float64)
            free[torch.arange(first.width)] = wanted[first.rows]
        else:
            matrix = torch.cat([mine[block].dense() for block in blocks], dim=1)
            free = torch.linalg.lstsq(matrix, wanted[:, None], driver="gelsd").solution[:, 0]
            if float(torch.linalg.vector_norm(matrix @ free - wanted)) > _SAME * float(
                torch.linalg.vector_norm(wanted)
            ):
                continue
        yield _way(space, entry, wanted, dict(zip(blocks, free.split([mine[b].width for b in blocks]), strict=True)))


def _way(space: Space, entry: Entry, wanted: Tensor, free: dict[int, Tensor]) -> Way:
    moved: Delta = {}
    for name, maps in space.maps.items():
        if name != entry.name and not maps.keys().isdisjoint(free):
            total = torch.zeros(space.tracked[name].size, dtype=torch.float64)
            for block in maps.keys() & free.keys():
                total += maps[block](free[block])
            if float(total.abs().max()) > _SAME * float(wanted.abs().max()):
                moved[name] = total.reshape(space.tracked[name].coordinate_shape)
    largest = max((float(each.abs().max()) for each in moved.values()), default=0.0)
    return Way(moved=moved, amplification=largest / float(wanted.abs().max()), vectors=len(free))


def fewer(space: Space, entry: Entry, change: Tensor, way: Way) -> Way:
    """A way that moves fewer parameters, by adding free vectors that move nothing new; the same way where there is none."""
    names = {entry.name, *way.moved}
    touched: dict[int, set[str]] = {}
    for name, maps in space.maps.items():
        for block in maps:
            touched.setdefault(block, set()).add(name)
    blocks = [block for block, moved in touched.items() if moved <= names]
    widths = {block: each.width for maps in space.maps.values() for block, each in maps.items()}
    if len(way.moved) < 2 or not blocks or sum(widths[block] for block in blocks) > _LARGEST:
        return way

    def rows(name: str) -> Tensor:
        mine, size = space.maps[name], space.tracked[name].size
        absent = {block: torch.zeros(size, widths[block], dtype=torch.float64) for block in blocks if block not in mine}
        return torch.cat([absent[block] if block in absent else mine[block].dense() for block in blocks], dim=1)

    best = way
    wanted = change.reshape(-1)
    for still in way.moved:
        system = torch.cat([rows(entry.name), rows(still)])
        target = torch.cat([wanted, torch.zeros(space.tracked[still].size, dtype=torch.float64)])
        free = torch.linalg.lstsq(system, target[:, None], driver="gelsd").solution[:, 0]
        if float(torch.linalg.vector_norm(system @ free - target)) > _SAME * float(torch.linalg.vector_norm(wanted)):
            continue
        parts = free.split([widths[block] for block in blocks])
        found = _way(space, entry, wanted, dict(zip(blocks, parts, strict=True)))
        best = min(best, found, key=lambda each: each.cost)
    return best if best is way else fewer(space, entry, change, best)


def folds(model: nn.Module, space: Space, entry: Entry) -> tuple[Fold, ...]:
    """What must move, and how, when one parameter's absorbable part is removed.

    Args:
        model: with the weights that `space` was found at.
        space: the null space.
        entry: the parameter.
    """
    drawn = space.sample(torch.Generator().manual_seed(4)).get(entry.name)
    if drawn is None:
        return ()
    way = min(ways(space, entry, -drawn), key=lambda each: each.cost, default=None)
    way = fewer(space, entry, -drawn, way) if way is not None else None
    if way is None:
        return ()
    weights = dict(model.named_parameters())
    own = space.redundant(entry.name)
    removed = drawn.reshape(-1)
    bare = removed - own.T @ (own @ removed)  # what is redundant alone needs nobody to take it over
    found = []
    for name, change in way.moved.items():
        formula = _formula(weights.items(), entry.name, (removed, bare), change.reshape(-1), space.redundant(name))
        found.append(
            Fold(
                into=name,
                formula=f"{name} {formula or f'+= a linear map of {entry.name}, solved from the weights between them'}",
                amplification=float(change.abs().max() / drawn.abs().max()),
                solved=not formula,
            )
        )
    return tuple(found)


def _formula(
    weights: Iterable[tuple[str, Tensor]], name: str, given: tuple[Tensor, Tensor], change: Tensor, free: Tensor
) -> str:
    def shown(vector: Tensor) -> Tensor:  # what takes over may move along its own redundant directions, rows of `free`
        return vector - free.T @ (free @ vector) if vector.shape == change.shape else vector

    for removed in given:
        if (found := _multiple(shown(removed), shown(change))) is not None:
            return f"{_sign(found)} {_times(found)}{name}"
    for weight, product in (pair for removed in given for pair in _products(weights, removed, len(change))):
        if (found := _multiple(shown(product), shown(change))) is not None:
            return f"{_sign(found)} {_times(found)}{weight} @ {name}"
    return ""


def _products(weights: Iterable[tuple[str, Tensor]], removed: Tensor, height: int) -> Iterator[tuple[str, Tensor]]:
    """Products of the removed numbers with every weight of the right shape."""
    for name, weight in weights:
        shape = weight.shape
        if weight.dim() == 1 and shape[0] == len(removed) == height:
            yield f"diag({name})", weight.detach().double() * removed
        if weight.dim() < 2:
            continue
        if shape[0] == height and shape[1] == len(removed):  # a kernel that slides over a constant sums over its places
            matrix = weight.detach().double()
            yield name, (matrix.flatten(2).sum(2) if matrix.dim() > 2 else matrix) @ removed
        if weight.dim() == 2 and shape[1] == height and shape[0] == len(removed):
            yield f"{name}.T", weight.detach().double().T @ removed


def _multiple(base: Tensor, change: Tensor) -> float | None:
    """The number that makes one vector of the other; None where no number does."""
    if base.shape != change.shape or not bool(base.any()):
        return None
    factor = float(base @ change / (base @ base))
    near = float(torch.linalg.vector_norm(change - factor * base)) <= _SAME * float(torch.linalg.vector_norm(change))
    return factor if near and factor else None


def _sign(factor: float) -> str:
    return "+=" if factor > 0 else "-="


def _times(factor: float) -> str:
    return "" if abs(abs(factor) - 1) <= _SAME else f"{abs(factor):.6g} * "
