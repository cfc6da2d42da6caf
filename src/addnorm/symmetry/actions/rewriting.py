"""Other operations in place of one: in the graph, and in the program that lists its nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from addnorm.redundancy.graph.export import Program


def inserted(after: fx.Node, target: Any, *given: Any) -> fx.Node:
    """Return a new call behind a node, with the shape of its result."""
    with after.graph.inserting_after(after):
        made = after.graph.call_function(target, given)
    sizes: Any = fx.node.map_arg(given, lambda each: torch.empty_like(each.meta["val"], device="meta"))
    made.meta = {**after.meta, "val": target(*sizes)}
    return made


def put_in_place(node: fx.Node, made: Sequence[fx.Node]) -> None:
    """Let all that read a node read the last of some others, which may read it themselves."""
    node.replace_all_uses_with(made[-1], delete_user_cb=lambda user: user not in made)


def rewritten(program: Program, replaced: Mapping[fx.Node, Sequence[fx.Node]]) -> Program:
    """The program with nodes in place of others, and without those that no output needs any more."""
    observed = tuple(replaced[node][-1] if node in replaced else node for node in program.observed)
    nodes = list(dict.fromkeys(each for node in program.nodes for each in replaced.get(node, [node])))
    needed = set(observed)
    for node in reversed(nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    return replace(program, nodes=tuple(node for node in nodes if node in needed), observed=observed)
