"""The structural method at one point: the directions that the graph's equations prove, each with its family."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy import linalg, sparse
from torch import Tensor, nn

from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.graph.export import Program
from addnorm.symmetry.actions.equations import ZERO, Ids, Numbers, null_basis, sparse_basis
from addnorm.symmetry.actions.propagation import Propagation, given, held, propagate, rows_read_together
from addnorm.symmetry.actions.system import System
from addnorm.symmetry.actions.uses import GainUse, MapUse
from addnorm.symmetry.families import STREAM_ROLES, Signature, family_of


@dataclass(frozen=True)
class Direction:
    """One proven direction."""

    family: str
    generator: sparse.csc_matrix
    """[unknown, 1]: the actions and tangents."""


@dataclass(frozen=True)
class Structure:
    """All proven directions at a point."""

    propagation: Propagation
    columns: Mapping[str, slice]
    """Place of every parameter among all, by name."""
    directions: tuple[Direction, ...]

    def tangents(self, directions: tuple[Direction, ...]) -> Tensor:
        """The directions of parameters, [column, direction]."""
        size = max((each.stop for each in self.columns.values()), default=0)
        made = np.zeros((size, len(directions)))
        if directions:
            joined = sparse.hstack([each.generator for each in directions], format="csr")
            for name, ids in self.propagation.tangents.items():
                made[self.columns[name]] = joined[ids.reshape(-1)].toarray()
        return torch.from_numpy(made)


def columns_of(model: nn.Module) -> dict[str, slice]:
    """Place of every floating-point parameter among all."""
    made: dict[str, slice] = {}
    at = 0
    for name, each in model.named_parameters():
        if each.is_floating_point():
            made[name] = slice(at, at + each.numel())
            at += each.numel()
    return made


def structure(
    program: Program,
    model: nn.Module,
    *inputs: Inputs,
    nearly: bool = False,
    propagation: Propagation | None = None,
    drawn: tuple[Inputs, ...] = (),
) -> Structure:
    """Prove directions at a model's point.

    Args:
        program: the exported model.
        model: a copy in float64.
        inputs: the inputs with which it was exported, and others of the same shapes for which the equations are to hold too.
        nearly: also directions that small constants (eps) break.
        propagation: the equations, if they are known.
        drawn: further inputs which tell what rows of tables are only read together; without them none are taken to be.
    """
    own = {id(each): name for name, each in model.named_parameters()}
    tensors = held(model)
    names = {name: own.get(id(each), name) for name, each in tensors.items()}
    made = propagation
    known = rows_read_together(program, model, (*inputs, *drawn)) if drawn and propagation is None else None
    for each in inputs if propagation is None else ():
        made = propagate(program, tensors.__getitem__, given(program, each), names, made, known)
    assert made is not None
    rows = np.concatenate([each.reshape(-1) for each in made.tangents.values()] or [np.zeros(0, np.int64)])
    # Rows that these inputs do not look up: nothing is asked of them, but they are not free.
    made.system.equations.vanish(np.setdiff1d(rows, made.system.equations.mentioned()))
    roles = _Roles.of(made)
    # With as few vectors as possible that act on a stream, so that a branch's own directions are told from it.
    of_streams = [bool(each & STREAM_ROLES) for each in roles.roles]
    streams = np.flatnonzero((roles.linear >= 0) & np.append(of_streams, False)[roles.linear])
    still, moving = _split(made.system.equations.solve(nearly=nearly).tocsc(), streams)
    basis = _written(sparse.hstack([still, moving], format="csc"), roles, rows)
    basis = _with_still_forms(_without_shifts(_apart(basis, made.system), roles), made.system, roles, rows)
    basis = _with_fewest_shifts(basis, roles)
    size = np.asarray(abs(basis.tocsr()[rows]).max(0).todense()).reshape(-1) if basis.shape[1] else np.zeros(0)
    directions = tuple(
        Direction(family_of(roles.signature(basis[:, [at]])), basis[:, [at]])
        for at in np.flatnonzero(size > 1e-9).tolist()
        if _is_constant(basis[:, [at]], made.system, roles)
    )
    return Structure(propagation=made, columns=columns_of(model), directions=directions)


def _written(basis: sparse.csc_matrix, roles: "_Roles", rows: Ids) -> sparse.csc_matrix:
    """The same space, with linear actions that use free shifts which no reader reads as little as possible.

    An action u sᵀ along a direction u that no reader reads, and the free shift of a writer along u that undoes it, are a
    solution that moves no weight. Mixed with it, an action would rely on u, which moves as soon as the readers' weights do.
    """
    shifts = np.flatnonzero(roles.marks["unread"])
    if not len(shifts) or not basis.shape[1]:
        return basis
    linear = np.flatnonzero(roles.linear >= 0)
    some = _touching(basis, linear) | _touching(basis, shifts)
    idle, moving = _split(basis[:, np.flatnonzero(some)], rows)
    both = sparse.hstack([idle, moving], format="csc")
    still, _ = _split(both, linear)
    # The idle ones come first, so that the others are chosen among vectors that act alike.
    chosen = _independent(both.tocsr()[linear].toarray())
    pure = _reduced(both[:, chosen[chosen >= idle.shape[1]]], sparse.hstack([idle, still], format="csc"), shifts)
    return sparse.hstack([basis[:, np.flatnonzero(~some)], idle, still, pure], format="csc")


def _split(basis: sparse.csc_matrix, rows: Ids) -> tuple[sparse.csc_matrix, sparse.csc_matrix]:
    """The space in two parts: the vectors that have no entry in some rows, and as many others as are needed."""
    if not len(rows) or not basis.shape[1]:
        return basis, basis[:, :0]
    # Each vector is of size one as a whole: an entry that is small beside that is rounding, however small the others are.
    basis = _combined(basis, sparse.diags(1 / np.asarray(abs(basis).max(0).todense()).reshape(-1)).tocsc())
    touching = np.flatnonzero(_touching(basis, rows))
    others = basis[:, np.setdiff1d(np.arange(basis.shape[1]), touching)]
    if len(touching):
        part = basis.tocsr()[rows][:, touching].toarray()
        _, triangle, order = linalg.qr(part, mode="economic", pivoting=True)
        size = np.abs(np.diag(triangle))
        moving = basis[:, touching[order[: int((size > 1e-8 * size[0]).sum())]]]
        mixed = _combined(basis[:, touching], sparse.csc_matrix(sparse_basis(null_basis(part))))
        others = sparse.hstack([others, mixed], format="csc")
    else:
        moving = basis[:, :0]
    kept = np.ones(basis.shape[0])
    kept[rows] = 0
    return (sparse.diags(kept) @ others).tocsc(), moving


def _touching(basis: sparse.csc_matrix, rows: Ids) -> np.ndarray:
    """True for the vectors that have an entry in some rows."""
    if not len(rows) or not basis.shape[1]:
        return np.zeros(basis.shape[1], bool)
    return np.asarray(abs(basis.tocsr()[rows]).max(0).todense()).reshape(-1) > 1e-9


def _independent(columns: Numbers) -> Ids:
    """The first columns of a matrix that are independent of those before them."""
    triangle = linalg.qr(columns, mode="r")[0]
    kept: list[int] = []
    spanned = np.zeros((len(triangle), 0))
    for at, column in enumerate(triangle.T):
        rest = column - spanned @ (spanned.T @ column)
        rest = rest - spanned @ (spanned.T @ rest)
        if float(np.linalg.norm(rest)) > 1e-9 * max(float(np.linalg.norm(column)), 1e-300):
            kept.append(at)
            spanned = np.concatenate([spanned, rest[:, None] / np.linalg.norm(rest)], 1)
    return np.array(kept, np.int64)


def _apart(basis: sparse.csc_matrix, system: System) -> sparse.csc_matrix:
    """The same space with as few vectors as possible that move a gain or a learned factor, and those scaling entries alone.

    Their directions are so counted apart from those of the matrices beside them. A finite move needs it too: the factor P of
    z = P x passes an action A on as P A P^-1, which is constant only while P is, unless A is diagonal.
    """
    gains = [use.weight for use in system.uses if isinstance(use, GainUse)]
    rows = np.unique(
        np.concatenate([each.reshape(-1) for each in (*system.factors, *gains)] or [np.zeros(0, np.int64)])
    )
    still, moving = _split(basis, rows[rows != ZERO])
    return sparse.hstack([still, _reduced(moving, still, _mixing(system))], format="csc")


def _is_constant(generator: sparse.csc_matrix, system: System, roles: "_Roles") -> bool:
    """True if a direction's actions still solve the equations after any move along it.

    Of z = P x follows A' = P A P^-1 + D, where D is the rate of P. It stays so only where entries that A mixes have equal
    rates. A free shift along what no reader reads stays one only while no action moves the readers. Other null directions have
    a finite move as well, but not one with constant actions; they are not claimed.
    """
    if roles.marks["unread"][generator.indices].any() and (roles.linear[generator.indices] >= 0).any():
        return False
    numbers = np.zeros(system.equations.count + 1)  # the last is that of ZERO
    numbers[generator.indices] = generator.data
    for use in system.uses:
        if isinstance(use, GainUse):
            rates = numbers[use.after] - numbers[use.before]
            apart = np.abs(rates[:, None] - rates) > 1e-9 * max(1.0, np.abs(rates).max(initial=0))
            if bool((apart & (np.abs(numbers[use.mixed]) > 1e-9)).any()):
                return False
        elif isinstance(use, MapUse) and not use.keeps_fixed_entries(lambda ids: numbers[ids]):
            return False
    return True


def _mixing(system: System) -> Ids:
    """The unknowns by which an action mixes entries: those off every diagonal."""
    inside, outside = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for space in system.spaces:
        on_diagonal = np.eye(space.size, dtype=bool)
        inside.append(space.linear[on_diagonal])
        outside.append(space.linear[~on_diagonal])
    mixing = np.setdiff1d(np.concatenate(outside), np.concatenate(inside))
    return mixing[mixing != ZERO]


def _reduced(vectors: sparse.csc_matrix, by: sparse.csc_matrix, rows: Ids) -> sparse.csc_matrix:
    """The vectors less those combinations of others that agree best with them on some unknowns."""
    if not len(rows) or not vectors.shape[1] or not by.shape[1]:
        return vectors
    wanted, known = vectors.tocsr()[rows], by.tocsr()[rows]
    at = _used(wanted)
    others = _used(known[at].T)
    if not len(others):
        return vectors
    # Unknowns that the others alone move take part, or the smallest combination would move them.
    at = np.union1d(at, _used(known[:, others]))
    parts = linalg.lstsq(known[at][:, others].toarray(), wanted[at].toarray(), cond=1e-10)[0]
    return _less(vectors, by[:, others], parts)


def _used(matrix: sparse.csr_matrix | sparse.csc_matrix) -> Ids:
    """Rows that are not zero."""
    if not min(matrix.shape):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.asarray(abs(matrix.tocsr()).max(1).todense()).reshape(-1) > 1e-11)


def _less(vectors: sparse.csc_matrix, by: sparse.csc_matrix, parts: Numbers) -> sparse.csc_matrix:
    """The vectors less multiples of others."""
    parts[np.abs(parts) < 1e-11 * np.abs(parts).max(initial=0)] = 0
    count = vectors.shape[1]
    return _combined(
        sparse.hstack([vectors, by], format="csc"),
        sparse.vstack([sparse.identity(count), sparse.csc_matrix(-parts)], format="csc"),
    )


def _combined(vectors: sparse.csc_matrix, parts: sparse.csc_matrix) -> sparse.csc_matrix:
    """Linear combinations of vectors, without what only rounding leaves of terms that cancel.

    Rounding is told by the size of the terms, never of the result alone: beside a tangent of 1 of a weight that is hardly
    read, an action of 1e-10 may be what keeps the output.
    """
    made = (vectors @ parts).tocoo()
    terms = (abs(vectors) @ abs(parts)).tocsr()
    kept = np.abs(made.data) > 1e-13 * np.asarray(terms[made.row, made.col]).reshape(-1)
    return sparse.csc_matrix((made.data[kept], (made.row[kept], made.col[kept])), shape=made.shape)


def _without_shifts(basis: sparse.csc_matrix, roles: "_Roles") -> sparse.csc_matrix:
    """The same space, with linear actions that shift and use free shifts and null forms as little as possible.

    A linear action alone stays a symmetry as the weights flow. Mixed with an arbitrary shift of a norm's output, it would
    move the constants of null forms, and its finite move would not be exact.
    """
    linear = np.flatnonzero(roles.linear >= 0)
    marked = [roles.marks[name] for name in ("free", "unseen", "unread", "together")]
    rows = np.flatnonzero((roles.shift >= 0) | np.logical_or.reduce(marked))
    acting, shifting = _touching(basis, linear), _touching(basis, rows)
    mixed = np.flatnonzero(acting & shifting)
    if not len(mixed):
        return basis
    pure, others = basis[:, mixed], basis[:, np.flatnonzero(~acting)]
    if others.shape[1]:
        known, wanted = others.tocsr()[rows].toarray(), pure.tocsr()[rows].toarray()
        pure = _less(pure, others, linalg.lstsq(known, wanted, cond=1e-10)[0])
    both = sparse.hstack([basis[:, np.flatnonzero(acting & ~shifting)], pure], format="csc")
    if _touching(pure, rows).any():
        # What only shifts may be the difference of two vectors that act alike.
        still, moving = _split(both, linear)
        if still.shape[1]:
            return _without_shifts(sparse.hstack([moving, still, others], format="csc"), roles)
    return sparse.hstack([both, others], format="csc")


def _with_fewest_shifts(basis: sparse.csc_matrix, roles: "_Roles") -> sparse.csc_matrix:
    """The same space, with as few vectors without linear actions as possible that shift what a norm makes.

    Biases that only trade among themselves are so never counted with a norm's shift, whatever basis rounding has led to.
    """
    of_norms = [{"gain"} <= each or {"shift", "norm"} <= each for each in roles.roles]
    rows = np.flatnonzero((roles.shift >= 0) & np.append(of_norms, False)[roles.shift])
    acting = _touching(basis, np.flatnonzero(roles.linear >= 0))
    still, moving = _split(basis[:, np.flatnonzero(~acting)], rows)
    return sparse.hstack([basis[:, np.flatnonzero(acting)], still, moving], format="csc")


def _with_still_forms(basis: sparse.csc_matrix, system: System, roles: "_Roles", rows: Ids) -> sparse.csc_matrix:
    """The same space, with actions that leave the null forms of which they use multiples as they are, where there are such.

    Of V x + k = 0, an action A moves V by -V A and a shift b moves k by -V b. A weight with several uses (shared layers) and a
    bias would have to follow both, which constant multiples do not. Multiples of a spanned space's own forms can be left to
    a solution that moves no weight: an action N V of the space, and what its readers make of it.
    """
    acting = _touching(basis, np.flatnonzero(roles.linear >= 0))
    used = [(ids, null, use) for use in system.uses if isinstance(use, MapUse) for ids, (null, _) in use.multiples]
    shifting = _touching(basis, np.unique(np.concatenate([np.zeros(0, np.int64), *(ids for ids, _, _ in used)])))
    mixed = np.flatnonzero(acting & shifting)
    if not len(mixed):
        return basis
    idle, unseen = basis[:, :0], np.flatnonzero(roles.marks["unseen"])
    if _touching(basis[:, mixed], unseen).any():
        idle = _split(basis, rows)[0]
    alone = basis[:, np.flatnonzero(~acting & ~shifting)]
    made = []
    for at in mixed.tolist():
        vector = _freed(basis[:, [at]], idle, sparse.identity(basis.shape[0], format="csr")[unseen])
        moves = [
            sparse.csr_matrix((null[kept], (np.zeros(kept.sum(), int), use.before.shift[kept])), (1, basis.shape[0]))
            for ids, null, use in used
            if _touching(vector, ids[ids != ZERO])[0]
            for kept in [use.before.shift != ZERO]
        ]
        made.append(_freed(vector, alone, sparse.vstack(moves, format="csr")) if moves else vector)
    return sparse.hstack([basis[:, np.setdiff1d(np.arange(basis.shape[1]), mixed)], *made], format="csc")


def _freed(vector: sparse.csc_matrix, by: sparse.csc_matrix, of: sparse.csr_matrix) -> sparse.csc_matrix:
    """The vector less the combination of others with which some linear forms of it vanish; itself where there is none."""
    wanted, known = (of @ vector).toarray(), (of @ by).toarray()
    if not known.size or abs(wanted).max(initial=0) < 1e-9:
        return vector
    parts = linalg.lstsq(known, wanted, cond=1e-10)[0]
    return _less(vector, by, parts) if abs(wanted - known @ parts).max() < 1e-9 * abs(wanted).max() else vector


@dataclass(frozen=True)
class _Roles:
    """For every unknown, the space on which it acts."""

    linear: Ids
    """Number of a space by unknown; -1 for others."""
    shift: Ids
    marks: Mapping[str, np.ndarray]
    """True for the unknowns that have a mark of a signature, by its name there."""
    roles: tuple[frozenset[str], ...]

    @classmethod
    def of(cls, made: Propagation) -> "_Roles":
        count = made.system.equations.count
        linear: dict[int, set[str]] = {}
        shift: dict[int, set[str]] = {}
        for space in made.system.spaces:
            for ids, table in ((space.linear, linear), (space.shift, shift)):
                for each in np.unique(ids):
                    if each != ZERO:
                        table.setdefault(int(each), set()).update(space.roles)
        known: dict[frozenset[str], int] = {}

        def numbered(table: dict[int, set[str]]) -> Ids:
            numbers = np.full(count, -1, np.int64)
            for unknown, roles in table.items():
                numbers[unknown] = known.setdefault(frozenset(roles), len(known))
            return numbers

        first, second = numbered(linear), numbered(shift)
        marks = {}
        for name, groups in {
            "free": made.system.marks,
            "unseen": made.system.unseen,
            "unread": made.system.unwritten,
            "factors": made.system.factors,
            "together": made.system.constants,
            "lengths": made.system.lengths,
        }.items():
            marks[name] = np.zeros(count, bool)
            for ids in groups:
                marks[name][ids[ids != ZERO]] = True
        return cls(first, second, marks, tuple(known))

    def signature(self, generator: sparse.csc_matrix) -> Signature:
        active = generator.indices[np.abs(generator.data) > 1e-9]

        def union(numbers: Ids) -> frozenset[str]:
            at = np.unique(numbers[active])
            return frozenset().union(*(self.roles[each] | {"any"} for each in at if each >= 0))

        marks = {name: bool(each[active].any()) for name, each in self.marks.items()}
        return Signature(linear=union(self.linear), shifted=union(self.shift), **marks)
