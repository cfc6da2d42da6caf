"""Elements of the groups, applied to the axes of weights: gains folded away, and a matrix per cell."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from addnorm.symmetry.bases.channels import AxisUse, Gain
from addnorm.symmetry.bases.solution import Cell, Cells

Weights = dict[str, Tensor]
"""Parameters by name, in float64."""


@dataclass(frozen=True)
class CellPlace:
    """A part of an axis of a parameter that holds one whole cell, in the cell's order."""

    parameter: str
    axis: int
    index: Tensor
    """int64[coordinate]: place of every coordinate along the axis."""
    dual: bool
    """True if the entries along the axis are multiplied by the inverse transpose."""
    offset: float = 0.0
    power: int = 1
    expert: tuple[int, int] | None = None
    """Axis of the experts and the number of one, if the cell is that one's."""

    @property
    def exponent(self) -> int:
        """Of the factor by which a cell of one coordinate multiplies the entries."""
        return -self.power if self.dual else self.power

    def rows(self, weights: Weights) -> Tensor:
        """The coordinates, [coordinate, *other axes]."""
        rows = self._along(weights)[self.index]
        return rows + self.offset if self.offset else rows

    def put(self, weights: Weights, rows: Tensor) -> None:
        """Give the parameter other coordinates."""
        self._along(weights)[self.index] = rows - self.offset if self.offset else rows

    def _along(self, weights: Weights) -> Tensor:
        moved = weights[self.parameter].movedim(self.axis, 0)
        if self.expert is None:
            return moved
        axis, number = self.expert
        return moved.select(axis + (axis < self.axis), number)


def places(cells: Cells) -> dict[int, list[CellPlace]]:
    """Return the places of every cell, by its number; of each parameter's axis the first use counts, all others agree.

    A cell that some axis holds in part has no place and is left out.
    """
    # The number of each component's cell; of several experts' cells the first.
    number = np.full(int(cells.component.max(initial=-1)) + 1, -1)
    order = np.zeros(len(number), np.int64)
    for at, cell in enumerate(cells.cells):
        number[cell.components] = at - (cell.expert or 0)
        order[cell.components] = np.arange(cell.size)
    experts = Counter(at - cell.expert for at, cell in enumerate(cells.cells) if cell.expert is not None)
    made: dict[int, list[CellPlace]] = {at: [] for at in range(len(cells.cells))}
    broken: set[int] = set()
    seen: set[tuple[str, int, int]] = set()
    for use in cells.given.uses:
        if _slot(use) in seen:
            continue
        seen.add(_slot(use))
        component = np.where(use.channels >= 0, cells.component[use.channels], -1)
        held = np.where(component >= 0, number[component], -1)
        parity = cells.parity[use.channels] ^ use.dual
        for at in np.unique(held[held >= 0]).tolist():
            positions = np.flatnonzero(held == at)
            size = cells.cells[at].size
            # Several heads may hold the same cell one after the other.
            for part in np.split(positions, range(size, len(positions), size)):
                coordinates = order[component[part]]
                if len(part) != size or len(np.unique(coordinates)) != size or len(np.unique(parity[part])) > 1:
                    broken.add(at)
                    break
                index = torch.from_numpy(part[np.argsort(coordinates)].copy())
                dual = bool(parity[part[0]])
                for own in range(at, at + experts.get(at, 1)):
                    expert = None if cells.cells[own].expert is None else (use.experts or 0, own - at)
                    made[own].append(CellPlace(use.parameter, use.axis, index, dual, use.offset, use.power, expert))
    return {at: each for at, each in made.items() if at - (cells.cells[at].expert or 0) not in broken}


def spanned(
    cells: Cells, shapes: Mapping[str, Sequence[int]], zeros: Callable[[CellPlace], int]
) -> tuple[Cells, tuple[str, ...]]:
    """The cells without those that the numbers of one side are too few to span, and the parameters on both sides of these.

    A learned query that one matrix alone reads, as in attention pooling, is one column: of the matrix every part that it does
    not meet is free, too, and no Gram matrix tells the bases of that part apart. So it is with a head as wide as the stream,
    whose keys a norm before them leaves one dimension less.

    Args:
        cells: the cells.
        shapes: of the parameters.
        zeros: of a place the number of columns that are zero, in some basis, before bases are fixed.
    """
    short: dict[int, list[str]] = {}
    for at, given in places(cells).items():
        cell = cells.cells[at]
        for is_dual in (False, True) if cell.kind == "matrix" else ():
            numbers = 0
            for each in given:
                shape = shapes[each.parameter]
                count = math.prod(shape) // shape[each.axis]
                count = count if each.expert is None else count // shape[each.expert[0]]
                numbers += max(0, count - zeros(each)) * (each.dual == is_dual)
            if numbers < cell.size:
                short[at] = [each.parameter for each in given]
    kept = tuple(cell for at, cell in enumerate(cells.cells) if at not in short)
    return replace(cells, cells=kept), tuple(dict.fromkeys(name for names in short.values() for name in names))


def _slot(use: AxisUse) -> tuple[str, int, int]:
    """Return what several uses of one axis have in common: the axis, and of a further scale its first row."""
    first = int(np.argmax(use.channels >= 0)) if use.is_further else -1
    return use.parameter, use.axis, first


def transform(weights: Weights, given: list[CellPlace], matrix: Tensor) -> None:
    """Apply one element to a cell, in place."""
    inverse = torch.linalg.inv(matrix).T if any(each.dual for each in given) else matrix
    for each in given:
        element = torch.linalg.matrix_power(inverse if each.dual else matrix, each.power)
        each.put(weights, torch.tensordot(element, each.rows(weights), 1))


def rescale(weights: Weights, given: list[CellPlace], factor: float) -> None:
    """Apply a scale to a cell of one coordinate, in place."""
    for each in given:
        each.put(weights, each.rows(weights) * factor**each.exponent)


def fold_gains(cells: Cells, weights: Weights) -> tuple[str, ...]:
    """Multiply gains into the matrices that read what they multiply, or into those that write it, in place.

    Returns:
        The parameters that are neutral now. A gain with a zero among its factors stays.
    """
    names: dict[str, None] = {}
    for gains, readers in ((cells.folded, True), (cells.absorbed, False)):
        for gain in gains:
            factor = factor_of(gain, weights)
            if not bool((factor != 0).all()):
                continue
            by_channel = np.full(cells.given.count, -1)
            by_channel[gain.after if readers else gain.before] = np.arange(len(factor))
            # What one gain multiplies, the next may multiply again before a matrix reads it.
            for other in gains if readers else reversed(gains):
                near, far = (other.before, other.after) if readers else (other.after, other.before)
                by_channel[far] = np.where(by_channel[near] >= 0, by_channel[near], by_channel[far])
            seen: set[tuple[str, int, int]] = set()
            for use in cells.given.uses:
                at = np.where(use.channels >= 0, by_channel[use.channels], -1)
                if not (at >= 0).any() or _slot(use) in seen:
                    continue
                seen.add(_slot(use))
                moved = weights[use.parameter].movedim(use.axis, 0)
                held = torch.from_numpy(np.flatnonzero(at >= 0))
                numbers = factor[torch.from_numpy(at[at >= 0])]
                # Readers take the gain over; a norm's shift stands behind the gain, and is divided by it.
                numbers = numbers if use.dual or not readers else 1 / numbers
                moved[held] *= numbers.reshape(-1, *[1] * (moved.dim() - 1))
            names[gain.parameter] = None
    for gain in (*cells.folded, *cells.absorbed):
        if gain.parameter in names:
            weights[gain.parameter].reshape(-1)[torch.from_numpy(gain.index)] = 1.0 - gain.offset
    return tuple(names)


def factor_of(gain: Gain, weights: Mapping[str, Tensor]) -> Tensor:
    """The factor of every channel."""
    return weights[gain.parameter].reshape(-1)[torch.from_numpy(gain.index)] + gain.offset


def random_element(cell: Cell, generator: torch.Generator) -> Tensor:
    """Draw an element of a cell's group, well conditioned."""
    size = cell.size

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    if cell.kind == "rotation":
        return rotation(normal(size, size))
    if cell.kind == "centred rotation":
        plane = centred_plane(size)
        return plane @ rotation(normal(size - 1, size - 1)) @ plane.T + 1 / size
    if cell.kind in ("complex", "turn"):
        length, angle = torch.exp((0.5 if cell.kind == "complex" else 0.0) * normal(1)), 3 * normal(1)
        cosine, sine = length * torch.cos(angle), length * torch.sin(angle)
        return torch.stack([torch.cat([cosine, -sine]), torch.cat([sine, cosine])])
    if cell.kind == "matrix":
        scales = torch.exp(0.3 * normal(size))
        return rotation(normal(size, size)) @ torch.diag(scales) @ rotation(normal(size, size))
    made = torch.exp(0.5 * normal(1, 1))
    return made * torch.sign(normal(1, 1)) if cell.kind == "scale" else made


def rotation(given: Tensor) -> Tensor:
    """The orthogonal factor of a square matrix, with determinant one."""
    made, triangle = torch.linalg.qr(given)
    made = made * torch.sign(triangle.diagonal())
    if len(made) and float(torch.linalg.det(made)) < 0:
        made[:, 0] *= -1
    return made


def centred_plane(size: int) -> Tensor:
    """An orthonormal basis of the vectors whose entries add up to zero, [size, size - 1] (Helmert)."""
    made = torch.zeros(size, size - 1, dtype=torch.float64)
    for at in range(1, size):
        made[:at, at - 1] = 1.0
        made[at, at - 1] = -float(at)
        made[:, at - 1] /= (at * (at + 1)) ** 0.5
    return made


def move_at_random(cells: Cells, weights: Weights, seed: int) -> None:
    """Draw an element of every group and a factor of every gain, and apply them all, in place.

    Args:
        cells: the cells.
        weights: in float64.
        seed: of the draw.
    """
    fold_gains(cells, weights)
    generator = torch.Generator().manual_seed(seed)
    for at, given in places(cells).items():
        if given:
            transform(weights, given, random_element(cells.cells[at], generator))
    _unfold(cells, weights, generator)


def _unfold(cells: Cells, weights: Weights, generator: torch.Generator) -> None:
    """Draw gains, and divide what took them over; the reverse of `fold_gains`."""
    drawn: dict[str, Tensor] = {}
    for gain in (*cells.folded, *cells.absorbed):
        if gain.parameter not in drawn:
            shape = weights[gain.parameter].numel()
            drawn[gain.parameter] = torch.exp(0.3 * torch.randn(shape, generator=generator, dtype=torch.float64))
    inverse = {name: 1 / each for name, each in drawn.items()}
    for gain in (*cells.folded, *cells.absorbed):
        if bool((factor_of(gain, weights) != 1).any()):
            continue  # it has a zero, and was not folded
        weights[gain.parameter].reshape(-1)[torch.from_numpy(gain.index)] = (
            inverse[gain.parameter][torch.from_numpy(gain.index)] - gain.offset
        )
    fold_gains(cells, weights)
    for gain in (*cells.folded, *cells.absorbed):
        weights[gain.parameter].reshape(-1)[torch.from_numpy(gain.index)] = (
            drawn[gain.parameter][torch.from_numpy(gain.index)] - gain.offset
        )


@torch.no_grad()
def put(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give a model the weights of these names, in its own precision."""
    for name, parameter in model.named_parameters():
        if name in weights:
            parameter.copy_(weights[name])
