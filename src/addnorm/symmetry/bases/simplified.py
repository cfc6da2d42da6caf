"""A graph without casts, in which a layer norm is one operation, also where a model writes it as several, and so is a join.

    (x - mean(x)) * rsqrt(mean((x - mean(x))^2) + eps)  ->  layer_norm(x)        Cohere
    e = empty; e[..., :2] = a; e[..., 2:] = b           ->  cat([a, b])          DeepSeek-V3

Every rule of this room looks at one operation and its inputs. Taken one by one, `x - mean(x)` is a sum in which a stream meets
its own mean, and `mean(d^2)` a product of channels: nothing tells that only together they remove the mean and keep a rotation
that has it as its axis. A gain that is cast before it multiplies is a parameter no longer. So the graph is rewritten before it
is looked at; the model is not, and certificates compare models.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import fx

from addnorm.redundancy.graph.export import Program
from addnorm.symmetry.actions.call import operation
from addnorm.symmetry.bases.absorption import arguments

_aten = torch.ops.aten
_EMPTY = frozenset({"empty", "new_empty", "empty_like"})


def simplified(program: Program) -> Program:
    """The program without casts between precisions, with each layer norm over the last axis as one operation, without gain,
    and each tensor that is filled part by part as a concatenation."""
    replaced: dict[fx.Node, fx.Node] = {}
    for node in program.nodes:
        same, norm, parts = _cast(node) or _reshaped_back(node), _normalised(node), _parts(node)
        if same is not None and node not in program.observed:
            made = same
        elif norm is not None or parts:
            with node.graph.inserting_after(node):
                if norm is not None:
                    x, eps = norm
                    size = x.meta["val"].shape[-1]
                    made = node.graph.call_function(_aten.layer_norm.default, (x, [size], None, None, eps))
                else:
                    made = node.graph.call_function(_aten.cat.default, (parts, arguments(node).get("dim", 0)))
            made.meta = dict(node.meta)
        else:
            continue
        node.replace_all_uses_with(made)
        replaced[node] = made
    if not replaced:
        return program
    observed = tuple(replaced.get(node, node) for node in program.observed)
    needed = set(observed)
    nodes = list(dict.fromkeys(replaced.get(node, node) for node in program.nodes))
    for node in reversed(nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    return replace(program, nodes=tuple(node for node in nodes if node in needed), observed=observed)


def _cast(node: fx.Node) -> fx.Node | None:
    """The tensor that a node casts to another precision; None for any other node."""
    name, given = _call(node)
    if name not in ("to", "_to_copy") or not given.keys() <= {"self", "dtype"}:
        return None
    before, after = given["self"].meta.get("val"), node.meta.get("val")
    is_cast = all(isinstance(each, torch.Tensor) and each.is_floating_point() for each in (before, after))
    return given["self"] if is_cast else None


def _reshaped_back(node: fx.Node) -> fx.Node | None:
    """Tensor to which a node gives an axis back that was taken from it just before; None for any other node."""
    name, given = _call(node)
    before, of = _call(given["self"]) if name == "unsqueeze" else ("", {})
    is_back = (
        before == "squeeze" and of["self"].meta["val"].shape == node.meta["val"].shape and of.get("dim") == given["dim"]
    )
    return of["self"] if is_back else None


def _normalised(node: fx.Node) -> tuple[fx.Node, float] | None:
    """Stream and eps of a centred stream that is divided by its standard deviation; None for any other node."""
    name, given = _call(node)
    if name not in ("mul", "div"):
        return None
    inverse = "rsqrt" if name == "mul" else "sqrt"
    sides = [(given["self"], given["other"])]
    sides += [(given["other"], given["self"])] if name == "mul" else []
    for centred, scale in sides:
        x, (root, inside) = _centred(centred), _call(scale)
        if x is None or root != inverse:
            continue
        added, terms = _call(inside["self"])
        eps = terms.get("other")
        if added == "add" and isinstance(eps, int | float) and _is_variance(terms["self"], x):
            return x, float(eps)
    return None


def _parts(node: fx.Node) -> list[fx.Node]:
    """Parts that fill an empty tensor from its first entry to its last, in order along one axis; none for any other node."""
    name, given = _call(node)
    if name != "slice_scatter":
        return []
    axis, shape = given.get("dim", 0), node.meta["val"].shape
    made: dict[int, fx.Node] = {}
    while name == "slice_scatter":
        source, start = given["src"], given.get("start") or 0
        copied, of = _call(source)
        source = of["src"] if copied == "copy" and of["src"].meta["val"].shape == source.meta["val"].shape else source
        # A part that is written twice has its last numbers: too much for a concatenation.
        if given.get("dim", 0) != axis or given.get("step", 1) != 1 or start in made:
            return []
        made[start] = source
        name, given = _call(given["self"])
    at = 0
    for start in sorted(made):
        if start != at:
            return []
        at += made[start].meta["val"].shape[axis]
    return [made[start] for start in sorted(made)] if name in _EMPTY and at == shape[axis] else []


def _is_variance(node: object, x: fx.Node) -> bool:
    """True if a node is the mean over the last axis of the square of x without its mean."""
    name, given = _call(node)
    if name != "mean" or not _is_last(given):
        return False
    power, of = _call(given["self"])
    return power == "pow" and of["exponent"] == 2 and _centred(of["self"]) is x


def _centred(node: object) -> fx.Node | None:
    """x of `x - mean(x)` over the last axis; None for any other node."""
    name, given = _call(node)
    if name != "sub" or given.get("alpha", 1) != 1:
        return None
    mean, of = _call(given["other"])
    x = given["self"]
    return x if mean == "mean" and _is_last(of) and of["self"] is x and isinstance(x, fx.Node) else None


def _is_last(given: dict[str, Any]) -> bool:
    return given.get("dim") == [-1] and bool(given.get("keepdim"))


def _call(node: object) -> tuple[str, dict[str, Any]]:
    """Name and arguments of an operation, by their names; empty for what is none."""
    if not isinstance(node, fx.Node) or not isinstance(node.target, torch._ops.OpOverload):
        return "", {}
    return operation(node.target), arguments(node)
