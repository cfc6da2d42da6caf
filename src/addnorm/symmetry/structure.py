"""The structural method at one point: the directions that the graph's equations prove, each with its family."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy import linalg, sparse
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.graph.export import Program
from addnorm.symmetry.actions.equations import ZERO, Ids, null_basis, sparse_basis
from addnorm.symmetry.actions.propagation import Propagation, propagate
from addnorm.symmetry.families import Signature, family_of


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
    program: Program, model: nn.Module, inputs: Inputs, *, nearly: bool = False, propagation: Propagation | None = None
) -> Structure:
    """Prove directions at a model's point.

    Args:
        program: the exported model.
        model: a copy in float64.
        inputs: the inputs with which it was exported.
        nearly: also directions that small constants (eps) break.
        propagation: the equations, if they are known.
    """
    own = {id(each): name for name, each in model.named_parameters()}
    tensors: dict[str, Tensor] = {
        **dict(model.named_buffers(remove_duplicate=False)),
        **dict(model.named_parameters(remove_duplicate=False)),
    }
    names = {name: own.get(id(each), name) for name, each in tensors.items()}
    made = propagation or propagate(program, tensors.__getitem__, _given(program.nodes, program, inputs), names)
    basis = _apart(made.system.equations.solve(nearly=nearly).tocsc(), made.system.factors)
    roles = _Roles.of(made)
    basis = _without_shifts(basis, roles)
    rows = np.concatenate([each.reshape(-1) for each in made.tangents.values()] or [np.zeros(0, np.int64)])
    size = np.asarray(abs(basis.tocsr()[rows]).max(0).todense()).reshape(-1) if basis.shape[1] else np.zeros(0)
    directions = tuple(
        Direction(family_of(roles.signature(basis[:, [at]])), basis[:, [at]])
        for at in np.flatnonzero(size > 1e-9).tolist()
    )
    return Structure(propagation=made, columns=columns_of(model), directions=directions)


def _apart(basis: sparse.csc_matrix, factors: list[Ids]) -> sparse.csc_matrix:
    """The same space with as few vectors as possible that move a learned factor, so that its directions are counted apart
    from those of the matrices beside it."""
    rows = np.unique(np.concatenate([each.reshape(-1) for each in factors] or [np.zeros(0, np.int64)]))
    part = basis.tocsr()[rows[rows != ZERO]].toarray()
    touching = np.flatnonzero(np.abs(part).max(0, initial=0) > 1e-9)
    if not len(touching):
        return basis
    part = part[:, touching]
    part = part / np.abs(part).max(0)
    _, triangle, order = linalg.qr(part, mode="economic", pivoting=True)
    size = np.abs(np.diag(triangle))
    rank = int((size > 1e-9 * size[0]).sum())
    moving = basis[:, touching[order[:rank]]]
    still = np.setdiff1d(np.arange(basis.shape[1]), touching)
    combinations = sparse.csc_matrix(sparse_basis(null_basis(part)))
    scaled = basis[:, touching] @ sparse.diags(
        1 / np.abs(basis.tocsr()[rows[rows != ZERO]].toarray()[:, touching]).max(0)
    )
    mixed = (scaled @ combinations).tocsc()
    mixed.data[np.abs(mixed.data) < 1e-11] = 0
    mixed.eliminate_zeros()
    return sparse.hstack([basis[:, still], mixed, moving], format="csc")


def _without_shifts(basis: sparse.csc_matrix, roles: "_Roles") -> sparse.csc_matrix:
    """The same space, with linear actions that shift and use free shifts and null forms as little as possible.

    A linear action alone stays a symmetry as the weights flow. Mixed with an arbitrary shift of a norm's output, it would
    move the constants of null forms, and its finite move would not be exact.
    """
    table = basis.tocsr()
    acting = np.asarray(abs(table[np.flatnonzero(roles.linear >= 0)]).max(0).todense()).reshape(-1) > 1e-9
    rows = np.flatnonzero((roles.shift >= 0) | roles.free | roles.unseen)
    beside = table[rows]
    mixed = acting & (np.asarray(abs(beside).max(0).todense()).reshape(-1) > 1e-9)
    if not mixed.any() or acting.all():
        return basis
    others = basis[:, np.flatnonzero(~acting)]
    known, wanted = beside[:, np.flatnonzero(~acting)].toarray(), beside[:, np.flatnonzero(mixed)].toarray()
    parts = linalg.lstsq(known, wanted, cond=1e-10)[0]
    parts[np.abs(parts) < 1e-11] = 0
    pure = (basis[:, np.flatnonzero(mixed)] - others @ sparse.csc_matrix(parts)).tocsc()
    pure.data[np.abs(pure.data) < 1e-10] = 0
    pure.eliminate_zeros()
    return sparse.hstack([basis[:, np.flatnonzero(acting & ~mixed)], pure, others], format="csc")


def _given(nodes: tuple[fx.Node, ...], program: Program, inputs: Inputs) -> Callable[[str], Tensor]:
    """The input tensors by placeholder, in the order in which the export flattens them."""
    places = [
        each.name
        for each in nodes[0].graph.nodes
        if each.op == "placeholder" and each.name not in program.parameters and each.name not in program.constants
    ]
    leaves = tree_leaves((inputs.args, dict(inputs.kwargs)))
    states = len(places) - len(leaves)
    table = dict(zip(places[states:], leaves, strict=True))
    return lambda name: table[name]


@dataclass(frozen=True)
class _Roles:
    """For every unknown, the space on which it acts."""

    linear: Ids
    """Number of a space by unknown; -1 for others."""
    shift: Ids
    free: np.ndarray
    unseen: np.ndarray
    factors: np.ndarray
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
        free, unseen, factors = (np.zeros(count, bool) for _ in range(3))
        system = made.system
        for group, flags in ((system.marks, free), (system.unseen, unseen), (system.factors, factors)):
            for ids in group:
                flags[ids[ids != ZERO]] = True
        return cls(first, second, free, unseen, factors, tuple(known))

    def signature(self, generator: sparse.csc_matrix) -> Signature:
        active = generator.indices[np.abs(generator.data) > 1e-9]

        def union(numbers: Ids) -> frozenset[str]:
            at = np.unique(numbers[active])
            return frozenset().union(*(self.roles[each] | {"any"} for each in at if each >= 0))

        return Signature(
            linear=union(self.linear),
            shifted=union(self.shift),
            free=bool(self.free[active].any()),
            unseen=bool(self.unseen[active].any()),
            factors=bool(self.factors[active].any()),
        )
