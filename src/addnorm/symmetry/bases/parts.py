"""Parameters that a graph reads in parts, such as the rows of a matrix for queries, keys and values of other data each.

A rule knows one basis along each axis of a parameter. Where queries read other data than keys and values do, as in cross
attention, the rows of their common matrix (`in_proj_weight` of torch) have none. So each part becomes a parameter of its own, a
view of the whole: what is written to it in place is written to the whole.
"""

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import fx

from addnorm.redundancy.execution.operation_names import name_of
from addnorm.redundancy.graph.export import Program
from addnorm.symmetry.bases.change import Weights
from addnorm.symmetry.bases.graph import arguments

_SPLITS = frozenset({"split", "split_with_sizes", "chunk", "tensor_split"})


@dataclass(frozen=True)
class RowRange:
    """Some rows of a parameter."""

    parameter: str
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.parameter}[{self.start}:{self.stop}]"


def in_parts(program: Program) -> tuple[Program, dict[str, RowRange]]:
    """Return the program with a parameter for each part, and the parts by their names.

    Parts have to fill the first axis: how many rows of a table of positions are read depends on the inputs.
    """
    nodes, parameters, made = list(program.nodes), dict(program.parameters), {}
    names = Counter(parameters[node.name] for node in nodes if node.op == "placeholder" and node.name in parameters)
    for node in program.nodes:
        whole = program.parameters.get(node.name, "") if node.op == "placeholder" else ""
        if not whole or whole in program.buffers or names[whole] > 1:
            continue
        read = _read(node, [each for each in node.users if each in nodes])
        ends = [0, *sorted({stop for _, stop in read.values()})]
        if len(ends) < 3 or ends[-1] != node.meta["val"].shape[0] or {*read.values()} != {*itertools.pairwise(ends)}:
            continue
        for start, stop in itertools.pairwise(ends):
            part = RowRange(whole, start, stop)
            with node.graph.inserting_before(node):
                own = node.graph.placeholder(f"{node.name}_{start}_{stop}")
            views = [each for each, range_ in read.items() if range_ == (start, stop)]
            own.meta = dict(views[0].meta)
            for view in views:
                view.replace_all_uses_with(own)
            nodes.insert(nodes.index(node), own)
            made[str(part)] = part
            parameters[own.name] = str(part)
    return replace(program, nodes=tuple(nodes), parameters=parameters), made


def _read(node: fx.Node, users: list[fx.Node]) -> dict[fx.Node, tuple[int, int]]:
    """The views of a parameter and the rows that they hold; none if something else reads it, too."""
    read: dict[fx.Node, tuple[int, int]] = {}
    for user in users:
        given: dict[str, Any] = arguments(user)
        name = name_of(user.target)
        if given.get("dim", 0) != 0 or given.get("step", 1) != 1:
            return {}
        if name in _SPLITS:
            stops = list(itertools.accumulate(each.shape[0] for each in user.meta["val"]))
            read |= {view: ((0, *stops)[view.args[1]], stops[view.args[1]]) for view in user.users}  # type: ignore[index]
        elif name in ("slice", "narrow"):
            start = (given.get("start") or 0) % node.meta["val"].shape[0]
            read[user] = start, start + user.meta["val"].shape[0]
        else:
            return {}
    return read


def with_parts(weights: Weights, parts: Mapping[str, RowRange]) -> Weights:
    """The weights, and views of their parts."""
    views = {name: weights[part.parameter][part.start : part.stop] for name, part in parts.items()}
    return {**weights, **views}
