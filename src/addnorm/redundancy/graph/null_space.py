r"""The joint null space: all changes of the tracked parameters together that leave the observed output unchanged.

It is represented as delta_p = sum_b M_{p,b} z_b with free vectors z_b and one map M per parameter and block, most of
them absent and many the identity; distinct z give distinct delta. Parameters that share a block form a component. Every
query is answered inside one component, so that no matrix is larger than those of one layer. Example: in a post-norm
layer of width d, z consists of the norm's beta, the v bias and one number per norm, and the other biases are products
of these with the layer's weights.

What must hold: the answers depend on the space only, not on its coordinates z, which depend on the order of
elimination. The hard part is to decide whether a product of many weight matrices has a null direction: its true
singular values may lie below rounding. Regular maps and condition numbers decide this where singular values cannot; the
remaining cases are reported as unsure (tests/redundancy/test_null_space.py, test_chains.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
import torch

from addnorm.errors import InputError, UnknownName
from addnorm.redundancy.algebra.linear_map import LinearMap
from addnorm.redundancy.algebra.rank import FLOAT64, fewer_rows, kernel_and_clarity, rank
from addnorm.redundancy.execution.tracked_parameters import TrackedParameters

Delta = dict[str, torch.Tensor]
"""A change: per parameter a float64 tensor of its `coordinate_shape`; absent parameters do not change."""

_LARGEST_CONDITION = 1e12
"""Largest bound of a condition up to which float64 tells small singular values from zero; bounds of factors multiply."""

LARGEST_BASIS = 20_000_000
"""Largest size of the dense basis that `basis` returns."""


@dataclass(frozen=True, kw_only=True)
class Component:
    """Parameters whose null directions are coupled, and the free blocks that they share."""

    names: tuple[str, ...]
    blocks: tuple[int, ...]
    dim: int


class NullSpace:
    """The null space of all constraints over all tracked coordinates."""

    def __init__(self, tracked: TrackedParameters, maps: Mapping[str, Mapping[int, LinearMap]]) -> None:
        self.tracked = tracked
        self._maps = _without_noise({entry.name: dict(maps.get(entry.name, {})) for entry in tracked.entries})
        self._sizes = {block: each.width for maps in self._maps.values() for block, each in maps.items()}
        self._alone: dict[str, torch.Tensor] = {}
        self._unsure: set[str] = set()
        self._factors: dict[tuple[str, tuple[tuple[int, bytes], ...]], torch.Tensor] = {}
        self._closures: dict[int, dict[tuple[int, int], np.ndarray]] = {}

    @property
    def maps(self) -> Mapping[str, Mapping[int, LinearMap]]:
        """Per parameter, the maps from the free blocks that move it."""
        return self._maps

    @property
    def sizes(self) -> Mapping[int, int]:
        """The number of coordinates of every free block."""
        return self._sizes

    @property
    def dim(self) -> int:
        """Number of independent null directions of all parameters together."""
        return sum(self._sizes.values())

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """Connected parts, in the order of their first parameter. Parameters that cannot move belong to none."""
        parent: dict[int, int] = {block: block for block in self._sizes}

        def root(block: int) -> int:
            while parent[block] != block:
                block = parent[block]
            return block

        for maps in self._maps.values():
            blocks = list(maps)
            for block in blocks[1:]:
                parent[root(block)] = root(blocks[0])
        grouped: dict[int, list[str]] = {}
        for name, maps in self._maps.items():
            if maps:
                grouped.setdefault(root(next(iter(maps))), []).append(name)
        components = []
        for start, names in grouped.items():
            blocks_in = tuple(block for block in self._sizes if root(block) == start)
            dim = sum(self._sizes[block] for block in blocks_in)
            components.append(Component(names=tuple(names), blocks=blocks_in, dim=dim))
        return tuple(components)

    def component(self, name: str) -> Component | None:
        """Return the component of a parameter (by any of its names); None if it cannot move."""
        name = self._first(name)
        return next((each for each in self.components if name in each.names), None)

    def redundant(self, name: str) -> torch.Tensor:
        """Return the null vectors supported on one parameter alone, orthonormal, float64 [k, size]. It is redundant if
        k = size."""
        name = self._first(name)
        if name not in self._alone:
            self._alone[name] = self._inside(name)
        return self._alone[name]

    def _inside(self, name: str) -> torch.Tensor:
        component = self.component(name)
        if component is None:
            return torch.zeros(0, self.tracked[name].size, dtype=torch.float64)
        free, clear = self._free(component, name)
        # A direction may look null because float64 cannot see how it acts: a kernel without a gap, or maps behind so
        # many weights that their small singular values are rounding. Nothing is claimed then. Where no direction is
        # left there is no claim, and nothing to be careful about.
        conditions = (each.condition for other in component.names for each in self._maps[other].values())
        if free.shape[1] and not (clear and max(conditions) <= _LARGEST_CONDITION):
            self._unsure.add(name)
            return torch.zeros(0, self.tracked[name].size, dtype=torch.float64)
        # Distinct z give distinct delta, and along `free` no other parameter moves: the images in this one are
        # independent. So this QR decides no rank.
        return _orthonormal(self._rows(name, free)).T

    def unsure(self, name: str) -> bool:
        """Return True if float64 cannot decide which directions of a parameter are redundant; `redundant` then claims none."""
        self.redundant(name)
        return self._first(name) in self._unsure

    def absorbable(self, name: str) -> int:
        """Return the dimension of the null space's projection on one parameter: its directions that the others can
        compensate."""
        name = self._first(name)
        component = self.component(name)
        if component is None:
            return 0
        maps = self._maps[name]
        # Structure answers before numbers: a rank computed behind many layers would fall with their smallest weights.
        if any(each.regular and each.width == each.height for each in maps.values()):
            return self.tracked[name].size
        if len(maps) == 1 and all(each.regular for each in maps.values()):
            return next(iter(maps.values())).width
        return rank(torch.cat([each.dense() for each in maps.values()], dim=1).numpy())

    def sample(self, generator: torch.Generator) -> Delta:
        """Draw a random null vector, of about unit size per free coordinate, that moves every parameter that can move."""
        sizes = self._sizes.items()
        free = {block: torch.randn(size, generator=generator, dtype=torch.float64) for block, size in sizes}
        moved: Delta = {}
        for name, maps in self._maps.items():
            if maps:
                total = sum((each(free[block]) for block, each in maps.items()), torch.zeros((), dtype=torch.float64))
                moved[name] = total.reshape(self.tracked[name].coordinate_shape)
        return moved

    def project(self, delta: Mapping[str, torch.Tensor]) -> Delta:
        """Return the orthogonal projection of a change on the space. delta - project(delta) is the equivalent change of
        least norm."""
        given = {self._first(name): each.detach().to("cpu", torch.float64).reshape(-1) for name, each in delta.items()}
        moved: Delta = {}
        for names, basis in self.bases(given):
            entries = [self.tracked[name] for name in names]
            zeros = (torch.zeros(each.size, dtype=torch.float64) for each in entries)
            stacked = torch.cat([given.get(name, none) for name, none in zip(names, zeros, strict=True)])
            # Components share no coordinate, so their spaces are orthogonal, and the projection on the sum is the sum
            # of projections. What belongs to no component projects to zero and is left out.
            parts = (basis @ (basis.T @ stacked)).split([each.size for each in entries])
            moved |= {each.name: part.reshape(each.coordinate_shape) for each, part in zip(entries, parts, strict=True)}
        return moved

    def bases(self, names: Iterable[str]) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
        """Return an orthonormal basis [entry, dim] of each component to which one of some parameters belongs, with the names
        of its parameters in the order of their entries."""
        wanted = {self._first(name) for name in names}
        for component in self.components:
            if wanted & set(component.names):
                rows = [self.rows(name, component.blocks) for name in component.names]
                yield component.names, _orthonormal(torch.cat(rows))

    def rows(self, name: str, blocks: Sequence[int]) -> torch.Tensor:
        """Return a parameter's map from the coordinates of some blocks, one block after the other, float64 [size, width]."""
        size, maps = self.tracked[name].size, self._maps[name]
        zeros = {
            block: torch.zeros(size, self._sizes[block], dtype=torch.float64) for block in blocks if block not in maps
        }
        parts = [zeros[block] if block in zeros else maps[block].dense() for block in blocks]
        return torch.cat([torch.zeros(size, 0, dtype=torch.float64), *parts], dim=1)

    def basis(self) -> torch.Tensor:
        """Return a basis, float64 [dim, tracked.size], with independent but not orthonormal rows.

        Raises:
            InputError: it would have more than `LARGEST_BASIS` numbers.
        """
        if self.dim * self.tracked.size > LARGEST_BASIS:
            raise InputError(
                f"expected a dense basis of at most {LARGEST_BASIS} numbers, got {self.dim} x {self.tracked.size}. Use "
                "`redundant`, `absorbable` or `project`, which work component by component."
            )
        whole, at = torch.zeros(self.dim, self.tracked.size, dtype=torch.float64), 0
        for block, size in self._sizes.items():
            for name, maps in self._maps.items():
                if block in maps:
                    entry = self.tracked[name]
                    whole[at : at + size, entry.offset : entry.offset + entry.size] = maps[block].dense().T
            at += size
        return whole

    def _first(self, name: str) -> str:
        if name not in self.tracked.by_name:
            raise UnknownName("tracked parameter", name, self.tracked.names)
        return self.tracked[name].name

    def _rows(self, name: str, free: torch.Tensor) -> torch.Tensor:
        """The parameter's map from combinations `free` [dim, k] of the coordinates of its component, [size, k]."""
        whole = torch.zeros(self.tracked[name].size, free.shape[1], dtype=torch.float64)
        for block in sorted(self._maps[name], key=self._starts.__getitem__):
            part = free[self._starts[block] :][: self._sizes[block]]
            if part.any():
                whole += self._maps[name][block](part)
        return whole

    @cached_property
    def _starts(self) -> dict[int, int]:
        """The first coordinate of every block in its component."""
        starts: dict[int, int] = {}
        for component in self.components:
            ends = accumulate((self._sizes[block] for block in component.blocks), initial=0)
            starts |= dict(zip(component.blocks, ends, strict=False))
        return starts

    @cached_property
    def _touching(self) -> dict[int, list[int]]:
        """The places, among their component's names, of the parameters that a block moves."""
        touching: dict[int, list[int]] = {}
        for component in self.components:
            for place, name in enumerate(component.names):
                for block in self._maps[name]:
                    touching.setdefault(block, []).append(place)
        return touching

    def _pinned(self, component: Component, name: str) -> np.ndarray:
        """Coordinates (bool [dim]) that must vanish for all parameters but one to stay, determined without arithmetic."""
        # Each parameter of a component is asked about in turn, and with L of them one pass over all others each would be
        # L^2 steps. So ranges of parameters are halved: what all outside a range pin is found from what all outside the
        # larger range pin, and the ranges around the last question are kept: L log L steps.
        place, low, high = component.names.index(name), 0, len(component.names)
        known, used = self._closures.get(component.blocks[0], {}), {}
        pinned = np.zeros(component.dim, dtype=bool)
        while high - low > 1:
            middle = (low + high) // 2
            low, high, added = (
                (low, middle, range(middle, high)) if place < middle else (middle, high, range(low, middle))
            )
            if (low, high) not in known:
                known[low, high] = self._closed(component, pinned.copy(), added, range(low, high))
            pinned = used[low, high] = known[low, high]
        self._closures[component.blocks[0]] = used
        return pinned

    def _closed(self, component: Component, pinned: np.ndarray, added: range, moving: range) -> np.ndarray:
        """Coordinates that all but the moving parameters pin, given those that all but these and the added ones pin."""
        # A held parameter whose rows depend on one coordinate each, through the identity, pins these; then further ones
        # may depend on a single coordinate. A regular map pins its whole block.
        # This step decides no rank. Singular values come last, for the coordinates that structure does not pin, because a chain
        # of well-conditioned layers pins everything although its singular values decrease to rounding.
        waiting = list(added)
        while waiting:
            name = component.names[waiting.pop()]
            spans = {block: pinned[self._starts[block] :][: self._sizes[block]] for block in self._maps[name]}
            open_blocks = {block: each for block, each in self._maps[name].items() if not spans[block].all()}
            touched = np.zeros(self.tracked[name].size, dtype=np.int64)
            for each in open_blocks.values():
                touched[each.rows.numpy()] += 1
            for block, each in open_blocks.items():
                if each.regular and len(open_blocks) == 1:
                    spans[block][:] = True
                elif each.matrix is None:
                    # A row with a single open block, through the identity, says z_j = 0 if the held parameter stays.
                    spans[block][touched[each.rows.numpy()] == 1] = True
                if spans[block].all():
                    # A pinned block is zero, so that a row that named two open blocks may name one now.
                    waiting += [other for other in self._touching[block] if other not in moving]
        return pinned

    def _free(self, component: Component, name: str) -> tuple[torch.Tensor, bool]:
        """Orthonormal combinations of the component's coordinates [dim, k] along which no parameter but one moves, and
        True if their number is clear."""
        open_columns = torch.from_numpy(np.flatnonzero(~self._pinned(component, name)))
        rows = self._stack(component, name, open_columns)
        array, clear = kernel_and_clarity(rows.numpy()) if len(rows) else (np.eye(len(open_columns)), True)
        kernel = torch.from_numpy(array)
        free = torch.zeros(component.dim, kernel.shape[1], dtype=torch.float64)
        free[open_columns] = kernel
        return free, clear

    def _stack(self, component: Component, name: str, columns: torch.Tensor) -> torch.Tensor:
        """Maps of all parameters but one from ascending coordinates, stacked: as few rows as have the same singular values."""
        starts = [self._starts[block] for block in component.blocks]
        owners = np.searchsorted(starts, columns.numpy(), side="right") - 1
        places, firsts = np.unique(owners, return_index=True)
        spans = pairwise([*firsts.tolist(), len(columns)])
        inside = {component.blocks[place]: slice(*span) for place, span in zip(places, spans, strict=True)}
        parts = []
        for other in sorted({other for block in inside for other in self._touching[block]}):
            maps = self._maps[component.names[other]]
            read = [block for block in inside if block in maps]
            if component.names[other] != name:
                coordinates = [(block, columns[inside[block]] - self._starts[block]) for block in read]
                factor = self._factor(component.names[other], coordinates)
                part = torch.zeros(len(factor), len(columns), dtype=torch.float64)
                part[:, torch.cat([torch.arange(len(columns))[inside[block]] for block in read])] = factor
                parts.append(part)
        return torch.cat(parts) if parts else torch.zeros(0, len(columns), dtype=torch.float64)

    def _factor(self, name: str, coordinates: Sequence[tuple[int, torch.Tensor]]) -> torch.Tensor:
        """A parameter's map from some coordinates of its blocks, [rows, coordinates], in as few rows as `fewer_rows` needs."""
        # |A z|^2 is the sum of |A_p z|^2, so each part may be replaced by its triangular factor: the stack keeps its
        # singular values, and the rank rule sees the same numbers. The parameters of a component are asked about one
        # after the other, and nearly all of the others leave the same coordinates open each time: with L layers L
        # factorizations, not L^2.
        key = (name, tuple((block, each.numpy().tobytes()) for block, each in coordinates))
        if key not in self._factors:
            maps = self._maps[name]
            self._factors[key] = fewer_rows(
                torch.cat([maps[block].only(each).dense() for block, each in coordinates], dim=1)
            )
        return self._factors[key]


def _orthonormal(columns: torch.Tensor) -> torch.Tensor:
    """Orthonormal columns with the span of independent ones."""
    return torch.linalg.qr(columns).Q if columns.shape[1] else columns


def _without_noise(maps: dict[str, dict[int, LinearMap]]) -> dict[str, dict[int, LinearMap]]:
    """The maps without those that are rounding errors compared with the largest map of their block."""
    # A parameter that cancels out of a block in exact arithmetic has a map of size 1e-16 left, which a rank by itself
    # would count as freedom. A map that is known not to vanish stays, however small its factors have made it.
    sizes = {
        name: {block: 1.0 if each.matrix is None else float(each.matrix.abs().max()) for block, each in blocks.items()}
        for name, blocks in maps.items()
    }
    largest: dict[int, float] = {}
    for blocks in sizes.values():
        for block, size in blocks.items():
            largest[block] = max(size, largest.get(block, 0.0))
    return {
        name: {
            block: each
            for block, each in blocks.items()
            if each.regular or each.condition > _LARGEST_CONDITION or sizes[name][block] > FLOAT64 * largest[block]
        }
        for name, blocks in maps.items()
    }
