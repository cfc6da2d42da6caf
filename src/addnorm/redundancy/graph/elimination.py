r"""Elimination: each demand is solved for some free coordinates, and all shifts are expressed in the remaining ones.

A demand says that a shift vanishes, or that it is constant along some axes: linear equations in the free coordinates.

1. A coordinate that occurs in a single equation, with a coefficient that is not small, is solved for: the bias that was
   added last. This is a substitution, which decides no rank. "Constant along an axis" introduces the constant as a new
   free coordinate. Nearly all demands of real networks are of this kind, and the maps stay sparse.
2. The remaining equations are split into independent sets (per head, per channel), each of which is solved by a
   singular value decomposition.

Solved coordinates are recorded in `solutions`; shifts that refer to them are updated when they are next read. What must
hold: the solutions of all demands so far are exactly the values of the free coordinates. Too few solved coordinates
would be a false proof, too many would hide freedom. Random networks with known counts (tests/redundancy/test_blocks.py,
test_fuzz.py) check both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import hypot, inf, prod

import torch

from addnorm.redundancy.algebra.linear_map import LinearMap, dense, identity
from addnorm.redundancy.algebra.rank import conditioned, rank
from addnorm.redundancy.graph.equations import (
    compressed,
    differences,
    equations,
    kernel_by_components,
    levelled,
    without_repeats,
)
from addnorm.redundancy.graph.shift import (
    EPS,
    DenseTerm,
    DiagonalTerm,
    Shift,
    Term,
    TooLarge,
    reduce_equal,
    without_rounding,
)

OnLoss = Callable[[int, int], None]
"""Receives a block and the number of degrees of freedom that a demand takes from it."""

_PIVOT = 1e-3
"""Smallest pivot relative to its equation's largest coefficient: division by a smaller one would amplify rounding errors."""
_WELL_CONDITIONED = 1e4
"""Condition number up to which the last square block is solved for as a whole, before any other."""
_LARGEST_SYSTEM = 2**25
"""Largest number of coefficients for which coordinates are eliminated one by one."""


class Elimination:
    """The blocks of coordinates, and the solved ones as functions of the free ones."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.owner: dict[int, str] = {}
        self.solutions: dict[int, dict[int, LinearMap]] = {}

    def new_block(self, size: int, owner: str) -> int:
        """Introduce free coordinates, attributed to a parameter."""
        # A number is never used twice: a shift that was made long ago may still name a block that has been solved
        # since.
        name = len(self.sizes)
        self.sizes[name], self.owner[name] = size, owner
        return name

    def express(self, block: int) -> dict[int, LinearMap]:
        """Express a block's coordinates in those that are still free."""
        if block not in self.solutions:
            return {block: identity(self.sizes[block])}
        # A solution may name blocks that were solved later, so the chain is followed to free blocks. It cannot be circular: a
        # block is solved once, in terms of blocks that were free or new at that time. The result replaces the chain, or every
        # later shift would walk it again (hundreds of steps in a deep model).
        total: dict[int, LinearMap] = {}
        for inner, outer in self.solutions[block].items():
            for free, step in self.express(inner).items():
                path = outer.after(step)
                total[free] = total[free].plus(path) if free in total else path
        self.solutions[block] = total
        return total

    def current(self, shift: Shift) -> Shift:
        """Express a shift in the coordinates that are still free, without rounding errors."""
        if not any(block in self.solutions for block in shift.terms):
            return shift
        terms: dict[int, Term] = {}
        for block, term in shift.terms.items():
            if block not in self.solutions:
                _accumulate(terms, block, term)
                continue
            for free, path in self.express(block).items():
                _accumulate(terms, free, _substituted(term, path))
        return without_rounding(Shift(shift.shape, terms))

    def demand(self, shift: Shift, axes: Sequence[int] | None, on_loss: OnLoss) -> None:
        """Impose that the shift vanishes (`axes` None) or is constant along all of these axes together."""
        shift = without_rounding(self.current(shift))
        try:
            self._impose(shift, axes, on_loss)
        except TooLarge:
            # Setting these coordinates to zero implies the demand. It may hide freedom but proves nothing false.
            for block in shift.terms:
                if block not in self.solutions:
                    on_loss(block, self.sizes[block])
                    self.solutions[block] = {}

    def _impose(self, shift: Shift, axes: Sequence[int] | None, on_loss: OnLoss) -> None:
        # From the cheapest method to the most general one: a diagonal pivot, a regular map (whose block must vanish,
        # whatever its singular values are), coordinates that occur once, a square block, and a singular value
        # decomposition. Only the last one decides a rank, which depends on rounding.
        #
        # A term that has size one along all of the axes is constant there by construction: the demand says nothing of it.
        terms = {
            block: term
            for block, term in without_repeats(shift.terms).items()
            if axes is None or any(term.reduced[axis] > 1 for axis in axes)
        }
        if not terms or self._diagonal(terms, axes, on_loss):
            return
        if len(terms) == 1 and axes is None and next(iter(terms.values())).regular:
            # A regular map has full column rank by its structure (a product of regular ones): A x = 0 leaves x = 0 whatever
            # the singular values are. In a deep chain the smallest is far below rounding, and a rank computed from the
            # numbers would call such a coordinate free: a false proof.
            (only,) = terms
            on_loss(only, self.sizes[only])
            self.solutions[only] = {}
            return
        reduced = tuple(torch.broadcast_shapes(*(term.reduced for term in terms.values())))
        columns = sum(self.sizes[block] for block in terms)
        together = [axis for axis in axes if reduced[axis] > 1] if axes is not None else []
        matrices = {block: equations(term, reduced, together) for block, term in terms.items()}
        # `together` has only the axes along which some term varies. An axis along which none does would repeat every
        # equation.
        group = prod(reduced[axis] for axis in together)
        if together:
            matrices = {block: levelled(matrix, group, terms[block].noise) for block, matrix in matrices.items()}
        for block, matrix in matrices.items():
            on_loss(block, _taken(terms[block], matrix, group if together else None))
        rows, worst = prod(reduced), max(term.condition for term in terms.values())
        # Losses are reported before anything is solved, from each block's own equations: they say what a demand concerns, and
        # are shown to people. The counts of the proof come from the free coordinates at the end.
        if rows * columns > _LARGEST_SYSTEM:
            whole = torch.cat(list(matrices.values()), dim=1)
            self._solve(compressed(differences(whole, group) if together else whole), list(matrices), worst)
            return
        left = self._singletons(matrices, rows, group if together else None, terms)
        # `_square` only where no row was solved by itself: it uses the matrices as they were before `_singletons`
        # replaced columns of them.
        if left is None or (not together and len(left[0]) == rows and self._square(matrices, terms)):
            return
        self._solve(*left, worst)

    def _diagonal(self, terms: Mapping[int, Term], axes: Sequence[int] | None, on_loss: OnLoss) -> bool:
        """Solve the most common demand without a dense matrix: one block is diagonal along the only axis that varies."""
        for block, pivot in terms.items():
            if not isinstance(pivot, DiagonalTerm) or (axes is not None and pivot.axis not in axes):
                continue
            others = {other: term for other, term in terms.items() if other != block}
            if any(
                size > 1 and at != pivot.axis for term in others.values() for at, size in enumerate(term.reduced)
            ) or float(pivot.scale.abs().min()) < _PIVOT * float(pivot.scale.abs().max()):
                continue
            # D x + sum of A_j y_j = 0, or = c along the axis: x = (c - sum of A_j y_j) / D, entry by entry. The others must not
            # vary along another axis: then one entry of x would have to satisfy several equations.
            size = len(pivot.scale)
            solved: dict[int, LinearMap] = {}
            for other, term in others.items():
                matrix = equations(term, pivot.reduced, [])
                on_loss(other, _taken(term, matrix, None if axes is None else size))
                solved[other] = dense(
                    size, -matrix / pivot.scale[:, None], regular=term.regular, condition=term.condition
                )
            on_loss(block, size if axes is None else size - 1)
            if axes is not None:
                free = self.new_block(1, self.owner[block])
                solved[free] = dense(size, (1 / pivot.scale)[:, None])
            self.solutions[block] = solved
            return True
        return False

    def _square(self, matrices: Mapping[int, torch.Tensor], terms: Mapping[int, Term]) -> bool:
        """Solve "the shift vanishes" for a block whose matrix is square and regular, the last that is well conditioned or else
        the best conditioned. This decides no rank and preserves the regularity of the other blocks."""
        # The last block first: its parameter was added last, and its solution says which earlier shifts it absorbs. Where a
        # badly conditioned factor stands behind all of them, as the last layer of a chain, the rounding of the solution may
        # hide a cancellation further on. Singular values would be worse: they cannot tell the smallest one of a long product
        # from zero, and call an effective bias redundant.
        conditions: dict[int, float] = {}
        for block in reversed(list(matrices)):
            if terms[block].regular and matrices[block].shape[0] == matrices[block].shape[1]:
                conditions[block] = conditioned(matrices[block].numpy())[1]
                if conditions[block] <= _WELL_CONDITIONED:
                    break
        if not conditions:
            return False
        block = min(conditions, key=conditions.__getitem__)
        self.solutions[block] = {
            other: dense(
                len(given),
                -torch.linalg.solve(matrices[block], given),
                regular=terms[other].regular,
                condition=terms[other].condition * terms[block].condition,
            )
            for other, given in matrices.items()
            if other != block
        }
        return True

    def _singletons(
        self, matrices: dict[int, torch.Tensor], rows: int, group: int | None, terms: Mapping[int, Term]
    ) -> tuple[torch.Tensor, list[int]] | None:
        """Solve equations for coordinates that occur in no other one; return the rest, as a matrix and its blocks."""
        # Each equation is solved for at most one coordinate, the one with the largest coefficient. The coordinate must occur
        # nowhere else, or the substitution would have to be repeated in the other equations. A pivot far below the equation's
        # largest coefficient is refused: its division amplifies rounding, and an exact cancellation later would not be
        # recognised (tests/redundancy/test_seeds.py).
        open_rows = torch.ones(rows, dtype=torch.bool)
        largest = torch.stack([matrix.abs().amax(dim=1) for matrix in matrices.values()]).amax(dim=0)
        chosen: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for block, matrix in matrices.items():
            alone = torch.nonzero(matrix.ne(0).sum(dim=0) == 1).flatten()
            if not len(alone):
                continue
            at = matrix[:, alone].abs().argmax(dim=0)
            sizes = matrix[at, alone].abs()
            good = open_rows[at] & (sizes >= _PIVOT * largest[at])
            alone, at, sizes = alone[good], at[good], sizes[good]
            order = torch.argsort(sizes, stable=True)
            best = torch.full((rows,), -1)
            best[at[order]] = alone[order]  # the largest coefficient is written last
            taken = torch.nonzero(best >= 0).flatten()
            if len(taken):
                open_rows[taken] = False
                chosen[block] = (taken, best[taken])
        constant = None
        if group is not None and chosen:
            # "All entries of the group are equal" becomes "each entry equals a new coordinate", one equation per entry.
            constant = self.new_block(rows // group, self.owner[next(iter(chosen))])
            ones = torch.zeros(rows, rows // group, dtype=torch.float64)
            ones[torch.arange(rows), torch.arange(rows) // group] = -1.0
            matrices = matrices | {constant: ones}
        # A block of which only some coordinates were solved is replaced by a smaller block of the others. The old name stays
        # valid in every shift: its solution says which entries are the new block's, and what the solved ones are.
        rest: dict[int, tuple[int, torch.Tensor]] = {}
        for block, (_, columns) in chosen.items():
            keep = torch.ones(self.sizes[block], dtype=torch.bool)
            keep[columns] = False
            stay = torch.nonzero(keep).flatten()
            rest[block] = (self.new_block(len(stay), self.owner[block]) if len(stay) else -1, stay)
        narrowed = {
            rest[block][0] if block in rest else block: matrix[:, rest[block][1]] if block in rest else matrix
            for block, matrix in matrices.items()
            if block not in rest or len(rest[block][1])
        }
        facts = {
            rest[block][0] if block in rest else block: (term.regular, term.condition) for block, term in terms.items()
        }
        for block, (taken, columns) in chosen.items():
            # Row r says pivot * x + (the rest of the row) = 0, so x = -rest / pivot; with a constant c the rest has the
            # column -1 of c. A chosen coordinate occurs in its own row alone, so that the rest never contains another
            # chosen one.
            pivots = matrices[block][taken, columns]
            solved: dict[int, LinearMap] = {}
            name, stay = rest[block]
            if len(stay):
                solved[name] = LinearMap(height=self.sizes[block], rows=stay, matrix=None)
            for other, matrix in narrowed.items():
                part = -matrix[taken] / pivots[:, None]
                if part.any():
                    regular, condition = facts.get(other, (False, 1.0))
                    # Some rows of a regular map need not be regular; all of them, scaled by pivots, are.
                    step = LinearMap(
                        height=self.sizes[block],
                        rows=columns,
                        matrix=part,
                        regular=regular and len(taken) == rows,
                        condition=condition,
                    )
                    solved[other] = solved[other].plus(step) if other in solved else step
            self.solutions[block] = solved
        if group is not None and constant is None:
            # No coordinate stands alone, so no constant was introduced: the demand is that differences inside a group
            # vanish.
            whole = torch.cat([differences(matrix, group) for matrix in narrowed.values()], dim=1)
            return whole, list(narrowed)
        remaining = torch.cat([matrix[open_rows] for matrix in narrowed.values()], dim=1) if narrowed else None
        return (remaining, list(narrowed)) if remaining is not None and remaining.any() else None

    def _solve(self, matrix: torch.Tensor, blocks: list[int], worst: float) -> None:
        """Solve equations [rows, coordinates of these blocks in order] by their null space."""
        # Rows are normalised first: an equation that was multiplied by small weights is no less of a constraint. The
        # condition of the result is that of the worst of its equations, and infinite if some rank is not clear: no verdict is
        # based on a direction that may be null by rounding alone, even below a gap (tests/redundancy/test_chains.py).
        sizes = matrix.abs().amax(dim=1) if len(matrix) else matrix.new_zeros(0)
        matrix = matrix[sizes > 0] / sizes[sizes > 0][:, None]
        matrix = matrix / matrix.norm(dim=1, keepdim=True)
        if not len(matrix):
            return
        # Coordinates that occur in no remaining equation stay free under a new name. They would be exact zeros of the null
        # space, but the decomposition would mix them with others and turn a sparse map into a dense one.
        used = matrix.any(dim=0)
        kernel, clear = kernel_by_components(matrix[:, used])
        condition = worst if clear else inf
        free = self.new_block(kernel.shape[1], self.owner[blocks[0]]) if kernel.shape[1] else None
        at = row = 0
        for block in blocks:
            size = self.sizes[block]
            in_block = used[at : at + size]
            at += size
            if not in_block.any():
                continue
            places, stay = torch.nonzero(in_block).flatten(), torch.nonzero(~in_block).flatten()
            solved: dict[int, LinearMap] = {}
            if len(stay):
                other = self.new_block(len(stay), self.owner[block])
                solved[other] = LinearMap(height=size, rows=stay, matrix=None)
            part = kernel[row : row + len(places)]
            row += len(places)
            if free is not None and part.any():
                solved[free] = LinearMap(height=size, rows=places, matrix=part, condition=condition)
            self.solutions[block] = solved


def _taken(term: Term, matrix: torch.Tensor, group: int | None) -> int:
    """Number of a block's directions that a demand concerns: the rank of its equations, or of the differences inside groups of
    entries that have to be equal."""
    entries, coordinates = matrix.shape
    if term.regular and group is None:
        return coordinates
    if term.regular and group == entries == coordinates:
        return coordinates - 1  # exactly one direction moves all entries equally
    return rank((differences(matrix, group) if group is not None else matrix).numpy())


def _accumulate(terms: dict[int, Term], block: int, term: Term) -> None:
    if block not in terms:
        terms[block] = term
        return
    present = terms[block]
    a = present.dense() if isinstance(present, DiagonalTerm) else present
    b = term.dense() if isinstance(term, DiagonalTerm) else term
    # Two paths from one bias may cancel exactly (a residual and its negative). What is left is rounding of the summands, so the
    # noise grows with their size, not with that of the sum: only then does `without_rounding` recognise the cancellation.
    size = max(float(a.numbers.abs().max()), float(b.numbers.abs().max()))
    noise = hypot(a.noise, b.noise) + EPS * size
    terms[block] = DenseTerm(a.numbers + b.numbers, noise, condition=max(a.condition, b.condition))


def _substituted(term: Term, path: LinearMap) -> Term:
    """The term of a solved block, expressed in a free block."""
    # The rows of an identity are sorted wherever one is made, and compositions keep their order; so one with all rows
    # changes nothing, and a diagonal stays a diagonal.
    if isinstance(term, DiagonalTerm) and path.matrix is None and len(path.rows) == path.height:
        return term
    matrix = path.matrix
    if isinstance(term, DiagonalTerm):
        if matrix is None:
            return replace(term.dense(), numbers=term.dense().numbers[path.rows])
        numbers = term.scale.new_zeros(path.width, len(term.scale))
        numbers[:, path.rows] = (matrix * term.scale[path.rows][:, None]).T
        gain, size = float(matrix.abs().max()), float(term.scale.abs().max())
        noise = (term.noise + 8 * EPS * size) * max(gain, 1.0)
        return DenseTerm(numbers.reshape(path.width, *term.reduced), noise, *_facts(term, path))
    selected = term.numbers[path.rows]
    if matrix is None:
        return replace(term, numbers=selected)
    numbers = (matrix.T @ selected.reshape(len(selected), -1)).reshape(path.width, *term.reduced)
    # Independent errors add up to at most the norm of a column. A gain below one is not used: the product is rounded
    # again.
    gain = max(float(matrix.norm(dim=0).max()), 1.0)
    # A demanded constant is constant: the axis has size 1 from here on.
    return DenseTerm(
        reduce_equal(numbers), (term.noise + 8 * EPS * float(selected.abs().max())) * gain, *_facts(term, path)
    )


def _facts(term: Term, path: LinearMap) -> tuple[bool, float]:
    """`regular` and `condition` of the composition."""
    return term.regular and path.regular, term.condition * path.condition
