"""Sums that are read as a whole: of linear maps of one value, and of the two products of a rotation of pairs.

W x + s U (V x) is (W + s U V) x, as with an adapter of low rank (LoRA). Each summand alone has an action of its own, and
equations that tie its matrices to it. Their sum has but one, and what W and U V trade with each other leaves it as it is.
"""

import operator
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import fx

from addnorm.redundancy.execution.operation_names import COPIES, name_of
from addnorm.redundancy.graph.export import Program
from addnorm.symmetry.actions.rewriting import inserted, put_in_place, rewritten
from addnorm.symmetry.actions.rules.shapes import INDEXING


@dataclass(frozen=True)
class _Chain:
    """data M_1 M_2 … times a number, plus a shift."""

    data: Any
    matrices: tuple[fx.Node, ...] = ()
    """Each [in, out] where it is `transposed`, else [out, in]."""
    transposed: tuple[bool, ...] = ()
    factor: float = 1.0
    shift: fx.Node | None = None


def with_joined_maps(program: Program) -> Program:
    """The program with each such sum as one map, by a weight that is computed from the others."""
    weights = _made_of_weights(program)
    replaced: dict[fx.Node, list[fx.Node]] = {}
    observed = set(program.observed)

    def chain(node: Any) -> _Chain:
        """The maps that make a node of what they read; of a node that no map makes, the node itself."""
        if not isinstance(node, fx.Node) or node in observed or len(node.users) != 1:
            return _Chain(node)
        name, given = name_of(node.target), cast("tuple[Any, ...]", node.args)
        if name == "linear" and given[1] in weights and set(given[2:]) <= {None, *weights}:
            made, matrix, shift = chain(given[0]), given[1], (*given, None)[2]
        elif name in ("matmul", "mm") and given[1] in weights and given[1].meta["val"].dim() == 2:
            made, matrix, shift = chain(given[0]), given[1], None
        elif name == "mul" and isinstance(given[1], int | float) and not (made := chain(given[0])).shift:
            return replace(made, factor=made.factor * given[1]) if made.matrices else _Chain(node)
        elif name in COPIES and (made := chain(given[0])).matrices:
            return made
        else:
            return _Chain(node)
        if made.shift is not None:
            return _Chain(node)
        is_transposed = (*made.transposed, name != "linear")
        return replace(made, matrices=(*made.matrices, matrix), transposed=is_transposed, shift=shift)

    for node in program.nodes:
        if name_of(node.target) != "add" or len(node.args) != 2 or node.kwargs:
            continue
        one, other = (chain(each) for each in node.args)
        same = one.data is other.data and one.matrices and other.matrices and not (one.shift and other.shift)
        if not same or not isinstance(one.data, fx.Node) or one.data.meta["val"].dim() < 2:
            continue
        replaced[node] = made = _written(node, one, other)
        weights.update(made[:-1])
        if node in observed:
            observed.add(made[-1])
        put_in_place(node, made)
    return rewritten(program, replaced)


def rotating_products(program: Program) -> set[fx.Node]:
    """The products of which a sum or difference joins two that hold numbers of one value, as a rotation of pairs does."""
    made: set[fx.Node] = set()
    for node in program.nodes:
        if name_of(node.target) in ("add", "sub"):
            terms = [each for each in node.all_input_nodes if name_of(each.target) == "mul"]
            of = [{_source(factor) for factor in each.all_input_nodes} for each in terms]
            if len(terms) == 2 and {each for each in of[0] & of[1] if each.op == "call_function"}:
                made.update(terms)
    return made


def _source(node: fx.Node) -> fx.Node:
    """The value of which a node holds numbers in another order, or with another sign."""
    while True:
        name = name_of(node.target)
        if name in ("cat", "stack"):
            sources = {_source(each) for each in node.all_input_nodes}
            if len(sources) != 1:
                return node
            node = sources.pop()
        elif node.target is operator.getitem or name == "neg" or (name in INDEXING and len(node.all_input_nodes) == 1):
            node = node.all_input_nodes[0]
        else:
            return node


def _made_of_weights(program: Program) -> set[fx.Node]:
    """Parameters, and what is computed from them alone."""
    made: set[fx.Node] = set()
    for node in program.nodes:
        if node.op == "placeholder":
            own = program.parameters.get(node.name)
            if own is not None and own not in program.buffers:
                made.add(node)
        elif node.all_input_nodes and all(each in made for each in node.all_input_nodes):
            made.add(node)
    return made


def _written(node: fx.Node, one: _Chain, other: _Chain) -> list[fx.Node]:
    made: list[fx.Node] = []
    aten = torch.ops.aten

    def call(target: Any, *given: Any) -> fx.Node:
        made.append(inserted(made[-1] if made else node, target, *given))
        return made[-1]

    def product(of: _Chain) -> fx.Node:
        laid = [
            matrix if is_transposed else call(aten.t.default, matrix)
            for matrix, is_transposed in zip(of.matrices, of.transposed, strict=True)
        ]
        whole = laid[0]
        for each in laid[1:]:
            whole = call(aten.matmul.default, whole, each)
        return whole if of.factor == 1 else call(aten.mul.Tensor, whole, of.factor)

    matrix = call(aten.t.default, call(aten.add.Tensor, product(one), product(other)))
    shift = one.shift or other.shift
    call(aten.linear.default, one.data, matrix, *([] if shift is None else [shift]))
    return made
