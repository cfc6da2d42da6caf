"""A graph without casts, in which a layer norm is one operation, also where a model writes it as several, and so is a join.

    (x - mean(x)) * rsqrt(mean((x - mean(x))^2) + eps)  ->  layer_norm(x)        Cohere
    g * (x - mean(x)) / (std(x) + eps)                  ->  g * layer_norm(x)    The Annotated Transformer
    einsum("bhid,bhjd->bhij", q, k)                     ->  matmul(q, permute(k))
    (x * mask).sum(1) / mask.sum(1)                     ->  mean(x, 1)           sentence encoders
    table[places]                                       ->  embedding(table, places)
    e = empty; e[..., :2] = a; e[..., 2:] = b           ->  cat([a, b])          DeepSeek-V3
    x.new_zeros(2, 1, 8), b.expand_as(x)                ->  full, expand         no number of x is read

Every rule of this room looks at one operation and its inputs. Taken one by one, `x - mean(x)` is a sum in which a stream meets
its own mean, and `mean(d^2)` a product of channels: nothing tells that only together they remove the mean and keep a rotation
that has it as its axis. A gain that is cast before it multiplies is a parameter no longer. So the graph is rewritten before it
is looked at; the model is not, and certificates compare models.
"""

from typing import Any

import torch
from torch import fx

from addnorm.redundancy.execution.operation_names import name_of
from addnorm.redundancy.graph.export import Program
from addnorm.symmetry.actions.rewriting import inserted, put_in_place, rewritten
from addnorm.symmetry.actions.rules.einsum import letters_of
from addnorm.symmetry.actions.rules.shapes import FILLED
from addnorm.symmetry.actions.system import NoRule
from addnorm.symmetry.bases.graph import arguments

_aten = torch.ops.aten
_EMPTY = frozenset({"empty", "new_empty", "empty_like"})
_OF_SHAPE = {
    "expand_as": _aten.expand.default,
    "view_as": _aten.reshape.default,
    "reshape_as": _aten.reshape.default,
}
"""Operations that read another tensor's shape, and those that are given it."""


def simplified(program: Program) -> Program:
    """The program without casts between precisions, with each layer norm over the last axis as one operation, without gain,
    each tensor that is filled part by part as a concatenation, and Einstein sums as products of matrices."""
    replaced: dict[fx.Node, list[fx.Node]] = {}
    for node in program.nodes:
        same = _cast(node) or _reshaped_back(node)
        if same is not None and node not in program.observed:
            made = [same]
        else:
            made = _Written(node).operations()
            if not made:
                continue
            made[-1].meta = dict(node.meta)
        put_in_place(node, made)
        replaced[node] = made
    return rewritten(program, replaced)


class _Written:
    """Operations for which there are rules, in place of one for which there is none."""

    def __init__(self, node: fx.Node) -> None:
        self.node = node
        self.made: list[fx.Node] = []

    def operations(self) -> list[fx.Node]:
        """The operations in place of the node, of which the last one has its result; none if it stays."""
        norm, parts = _normalised(self.node), _parts(self.node)
        if norm is not None:
            x, gain, eps = norm
            one = self._call(_aten.layer_norm.default, x, [_shape(x)[-1]], None, None, eps)
            if gain is not None:
                self._call(_aten.mul.Tensor, gain, one)
        elif parts:
            self._call(_aten.cat.default, parts, arguments(self.node).get("dim", 0))
        elif _call(self.node)[0] == "einsum":
            self._einsum()
        elif (pooled := _pooled(self.node)) is not None:
            self._call(_aten.mean.dim, *pooled)
        elif (looked_up := _looked_up(self.node)) is not None:
            self._call(_aten.embedding.default, *looked_up)
        elif self.node.all_input_nodes and (number := _fills(self.node)) is not None:
            self._call(_aten.full.default, _shape(self.node), number)
        elif _call(self.node)[0] in _OF_SHAPE:
            self._call(_OF_SHAPE[_call(self.node)[0]], arguments(self.node)["self"], _shape(self.node))
        return self.made

    def _call(self, target: Any, *given: Any) -> fx.Node:
        self.made.append(inserted(self.made[-1] if self.made else self.node, target, *given))
        return self.made[-1]

    def _einsum(self) -> None:
        given = arguments(self.node)
        tensors = given["tensors"]
        if len(tensors) != 2:
            return
        try:
            (first, second), out = letters_of(given["equation"], [len(_shape(each)) for each in tensors])
        except NoRule:
            return
        shared = "".join(each for each in first if each in second and each in out)
        inner = "".join(each for each in first if each in second and each not in out)
        rows, columns = (
            "".join(each for each in one if each not in two) for one, two in ((first, second), (second, first))
        )
        whole = {*shared, *rows, *columns}
        if len(inner) != 1 or whole != {*out} or len(set(first)) < len(first) or len(set(second)) < len(second):
            return
        if shared and not (rows and columns):
            return  # each place has a vector of its own, as a query that reads the state of linear attention
        if first[-1] == second[-1]:
            # Queries and keys: places stand last in the scores.
            rows, columns = ("".join(each for each in out if each in given) for given in (rows, columns))
        if shared:
            # What one tensor alone has, such as the heads of queries that share a key, counts as shared: size one in the other.
            lead = shared + rows[:-1] + columns[:-1]
            orders = lead + rows[-1:] + inner, lead + inner + columns[-1:]
            order = lead + rows[-1:] + columns[-1:]
        else:
            if len(columns) != 1:
                tensors, first, second, rows, columns = tensors[::-1], second, first, columns, rows
            orders, order = (rows + inner, inner + columns), rows + columns
            if len(columns) != 1:
                return
        one, other = (self._laid(*each) for each in zip(tensors, (first, second), orders, strict=True))
        self._laid(self._call(_aten.matmul.default, one, other), order, out)

    def _laid(self, node: fx.Node, letters: str, order: str) -> fx.Node:
        """The node with its axes in an order, and axes of size one for letters that it lacks."""
        places = [letters.index(each) for each in order if each in letters]
        if places != sorted(places):
            node = self._call(_aten.permute.default, node, places)
        for at, each in enumerate(order):
            if each not in letters:
                node = self._call(_aten.unsqueeze.default, node, at)
        return node


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


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


def _normalised(node: fx.Node) -> tuple[fx.Node, fx.Node | None, float] | None:
    """Stream, gain and eps of a centred stream that is divided by its standard deviation; None for any other node."""
    name, given = _call(node)
    if name not in ("mul", "div"):
        return None
    sides = [(given["self"], given["other"])]
    sides += [(given["other"], given["self"])] if name == "mul" else []
    for numerator, scale in sides:
        kind, of = _call(numerator)
        # The gain may come first: g * (x - mean) / std.
        pairs = [(of["self"], of["other"]), (of["other"], of["self"])] if kind == "mul" else [(numerator, None)]
        for centred, gain in pairs:
            x = _centred(centred)
            eps = None if x is None else _deviation(scale, x, is_inverse=name == "mul")
            if x is not None and eps is not None and (gain is None or isinstance(gain, fx.Node)):
                return x, gain, eps
    return None


def _deviation(node: object, x: fx.Node, *, is_inverse: bool) -> float | None:
    """The eps of a node that holds the standard deviation of x along the last axis, or its inverse; None for any other."""
    name, given = _call(node)
    if name == ("rsqrt" if is_inverse else "sqrt"):
        added, terms = _call(given["self"])
        eps = terms.get("other") if added == "add" else None
        return float(eps) if isinstance(eps, int | float) and _is_variance(terms["self"], x) else None
    if is_inverse:
        return None
    eps = given.get("other", 0.0) if name == "add" else 0.0
    of, terms = _call(given["self"]) if name == "add" else (name, given)
    is_deviation = of == "std" and terms["self"] is x and _is_last(terms)
    return float(eps) if is_deviation and isinstance(eps, int | float) else None


def _pooled(node: fx.Node) -> tuple[fx.Node, Any, bool] | None:
    """Stream, axes and `keepdim` of a mean of the tokens that a mask keeps; None for any other node."""
    name, given = _call(node)
    of, total = _call(given["self"]) if name == "div" else ("", {})
    kind, masked = _call(total["self"]) if of == "sum" and total.get("dim") else ("", {})
    if kind != "mul":
        return None
    for x, mask in ((masked["self"], masked["other"]), (masked["other"], masked["self"])):
        is_mask = isinstance(x, fx.Node) and isinstance(mask, fx.Node) and _shape(mask)[-1:] == (1,)
        is_mask = is_mask and not _is_learned(mask)
        divisor, summed = _call(given["other"])
        divisor, summed = _call(summed["self"]) if divisor in ("clamp", "clamp_min") else (divisor, summed)
        same = [{key: each[key] for key in ("dim", "keepdim") if each.get(key)} for each in (summed, total)]
        if is_mask and divisor == "sum" and summed["self"] is mask and same[0] == same[1]:
            return x, total["dim"], bool(total.get("keepdim"))
    return None


def _is_learned(node: fx.Node) -> bool:
    """True if floating-point numbers from outside the graph, such as parameters, may decide a node: weights of a pooling are no
    mask, and what makes them must stay in sight."""
    left, seen = [node], {node}
    for each in left:
        if each.op == "placeholder" and each.meta["val"].dtype.is_floating_point:
            return True
        left += [before for before in each.all_input_nodes if before not in seen]
        seen.update(each.all_input_nodes)
    return False


def _looked_up(node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """Table and places of a node that takes rows of a parameter by their numbers; None for any other node."""
    name, given = _call(node)
    table, places = given.get("self"), given.get("indices")
    if name != "index" or not isinstance(table, fx.Node) or table.op != "placeholder" or len(_shape(table)) != 2:
        return None
    (place,) = places if isinstance(places, list | tuple) and len(places) == 1 else (None,)
    if not isinstance(place, fx.Node) or place.meta["val"].dtype not in (torch.int64, torch.int32):
        return None
    return table, place


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
    """True if a node is the variance of x along the last axis, or the mean of the square of x without its mean."""
    name, given = _call(node)
    if name == "var" and given["self"] is x:
        return _is_last(given)
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
    return name_of(node.target), arguments(node)


def _fills(node: fx.Node) -> float | None:
    """The number with which an operation fills a tensor of another's shape."""
    name = _call(node)[0]
    if name not in FILLED or name in _EMPTY:
        return None
    number: Any = arguments(node).get("fill_value", float("ones" in name))
    return number if isinstance(number, int | float) else None
