"""A graph's operations as the rules of constants see them: what each one is, and what ignores a mean."""

import math
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor, fx

from addnorm.redundancy.execution.operation_names import COPIES, LOG_SOFTMAXES, MASKED, SOFTMAXES, name_of
from addnorm.redundancy.graph.export import Program
from addnorm.symmetry.actions.rules.shapes import REORDERING
from addnorm.symmetry.bases.change import Weights

PASSING = COPIES | {"dropout"}
"""Operations that hand on their first argument."""


class Operations:
    """The operations of a graph."""

    def __init__(self, program: Program, folded: Collection[str] = ()) -> None:
        self.folded = frozenset(folded)
        """Gains of one: matrices before them have taken them over."""
        self.nodes = program.nodes
        self.place = {node: at for at, node in enumerate(program.nodes)}
        self.observed = frozenset(program.observed)
        self.constants = program.constants
        self.users = {node: [each for each in node.users if each in self.place] for node in program.nodes}
        self.named = {node: arguments(node) for node in program.nodes}
        self.parameters = {
            node: program.parameters[node.name]
            for node in program.nodes
            if node.op == "placeholder"
            and node.name in program.parameters
            and program.parameters[node.name] not in program.buffers
        }
        self.count = Counter(
            name for node, name in self.parameters.items() for user in self.users[node] for _ in places_of(user, node)
        )
        self._ignored: dict[fx.Node, bool] = {}

    # what a node is

    def name(self, node: fx.Node) -> str:
        return name_of(node.target) if node.op == "call_function" else ""

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        value = node.meta.get("val")
        return tuple(value.shape) if isinstance(value, Tensor) else ()

    def parameter(self, node: Any) -> str:
        """The parameter that a node is, if nothing else reads it; otherwise nothing."""
        name = self.parameters.get(node, "") if isinstance(node, fx.Node) else ""
        return name if name and self.count[name] == 1 and node not in self.observed else ""

    def table(self, node: Any) -> "fx.Node | None":
        """The parameter whose rows a value holds, of which nothing else is made, such as a slice of learned positions."""
        while isinstance(node, fx.Node) and node not in self.parameters:
            if len(node.all_input_nodes) != 1 or len(self.users[node]) != 1:
                return None
            (before,) = node.all_input_nodes
            node = before if self.name(node) != "cat" and self.keeps_last(node, before) else None
        return node if isinstance(node, fx.Node) else None

    def linear(self, node: fx.Node) -> "tuple[fx.Node, fx.Node, bool, Any] | None":
        """The data, the weight, whether it is held as [in, out], and the bias of a linear map."""
        given, name = self.named[node], self.name(node)
        if name == "linear":
            data, weight, is_transposed, bias = given["input"], given["weight"], False, given.get("bias")
        elif name == "addmm" and not {"alpha", "beta"} & given.keys():
            data, weight, is_transposed, bias = given["mat1"], given["mat2"], True, given["self"]
        elif name in ("matmul", "mm"):
            data, weight, is_transposed, bias = given["self"], given.get("other", given.get("mat2")), True, None
        else:
            return None
        # A bias may be one number for all channels, or a row for each token.
        if bias is not None and self.shape(bias) != self.shape(node)[-1:]:
            return None
        turns = ("t", "transpose", "mT", "permute")
        if self.name(weight) in turns and list(weight.args[1:]) != [[0, 1]] and len(self.users[weight]) == 1:
            weight, is_transposed = weight.args[0], not is_transposed
        if weight not in self.parameters or len(self.shape(weight)) != 2 or data in self.parameters:
            return None
        return data, weight, is_transposed, bias

    def matrix(self, node: fx.Node, numbers: Weights) -> Tensor:
        """A linear map's weight as [out, in], of the weights' own storage."""
        linear = self.linear(node)
        assert linear is not None
        weight = numbers[self.parameters[linear[1]]]
        return weight.T if linear[2] else weight

    def with_offset(self, node: fx.Node) -> tuple[fx.Node, float]:
        """A node and 0, or what it adds a number to, and the number: a gain of 1 + w."""
        given = self.named[node]
        if self.name(node) == "add" and isinstance(given["other"], int | float) and "alpha" not in given:
            return given["self"], float(given["other"])
        return node, 0.0

    def is_gain(self, node: fx.Node, data: fx.Node) -> "fx.Node | None":
        """The parameter by which a product multiplies data along the last axis."""
        given = self.named[node]
        one, other = given.get("self"), given.get("other")
        factor = other if one is data else one
        if self.name(node) != "mul" or factor not in self.parameters or self.shape(node) != self.shape(data):
            return None
        return factor if self.shape(factor) in ((self.shape(node)[-1],), ()) else None

    # what is added to all entries of the last axis

    def ignores_mean(self, node: fx.Node) -> bool:
        """True if nothing changes when some function of the data is added to all entries along the last axis."""
        if node not in self._ignored:
            self._ignored[node] = (
                node not in self.observed
                and bool(self.users[node])
                and all(self.removes_mean(user, node) for user in self.users[node])
            )
        return self._ignored[node]

    def removes_mean(self, user: fx.Node, node: fx.Node) -> bool:
        given, name, shape = self.named[user], self.name(user), self.shape(node)
        if not shape or shape[-1] < 2:
            return False
        if name == "layer_norm":
            return places_of(user, node) == ["input"] and len(given["normalized_shape"]) == 1
        if name in SOFTMAXES | LOG_SOFTMAXES:
            return given["dim"] in (-1, len(shape) - 1)
        if name == "topk" and given.get("dim", -1) in (-1, len(shape) - 1):
            # The largest stay the largest: what reads their places sees nothing, what reads their values has to remove it.
            values = [each for each in self.users[user] if each.args[1] == 0]
            return all(self.ignores_mean(each) for each in values)
        if self.is_masked(user, node):
            return self.ignores_mean(user)
        if name in ("add", "sub") and "alpha" not in given:
            return self.shape(user)[-1] == shape[-1] and self.ignores_mean(user)
        gain = self.is_gain(user, node)
        if self._has_one_factor(user, node) or (gain is not None and self.parameters[gain] in self.folded):
            return self.ignores_mean(user)
        return self.keeps_last(user, node) and self.ignores_mean(user)

    def _has_one_factor(self, user: fx.Node, node: fx.Node) -> bool:
        """True if an operation multiplies all entries along the last axis by one number, which the data do not decide."""
        given, name, places = self.named[user], self.name(user), places_of(user, node)
        if (name, places) not in (("mul", ["self"]), ("mul", ["other"]), ("div", ["self"])):
            return False
        factor = given["other"] if places == ["self"] else given["self"]
        is_held = isinstance(factor, fx.Node) and (factor in self.parameters or factor.name in self.constants)
        return isinstance(factor, int | float) or (is_held and self.shape(factor)[-1:] in ((), (1,)))

    def is_masked(self, user: fx.Node, node: fx.Node) -> bool:
        """True if an operation puts numbers that no softmax chooses in place of some scores."""
        given, name, places = self.named[user], self.name(user), places_of(user, node)
        if name == "where" and places in (["self"], ["other"]):
            fill = given["other" if places == ["self"] else "self"]
        elif name == "masked_fill" and places == ["self"]:
            fill = given["value"]
        else:
            return False
        return self._fill(fill) <= MASKED

    def _fill(self, given: Any) -> float:
        """The number that a mask puts in place of a score; NaN for what is not one number."""
        while isinstance(given, fx.Node) and self.name(given) in PASSING:
            given = given.args[0]
        held = self.constants.get(given.name) if isinstance(given, fx.Node) else given
        if isinstance(held, Tensor) and held.numel() == 1:
            held = held.item()
        return float(held) if isinstance(held, int | float) else math.nan

    def keeps_last(self, user: fx.Node, node: fx.Node) -> bool:
        """True if an operation only orders, copies, selects or averages whole rows along the last axis."""
        if self.name(user) in PASSING or self.averages_rows(user, node):
            return True
        if self.name(user) not in REORDERING or not self.shape(user) or not self.shape(node):
            return False
        last = torch.arange(self.shape(node)[-1])
        shapes = {each: self.shape(each) for each in user.all_input_nodes}
        # An empty cache, which a first call joins its keys to, has no rows.
        others = {
            each: torch.zeros(shape, dtype=torch.int64) for each, shape in shapes.items() if shape[-1:] != last.shape
        }
        rows = {each: last.expand(shape) for each, shape in shapes.items() if each not in others}
        made = self.reordered(user, {**others, **rows})
        return made.shape[-1:] == last.shape and bool((made == last).all())

    def averages_rows(self, user: fx.Node, node: fx.Node) -> bool:
        """True for a mean over other axes than the last, such as the pooling of all tokens."""
        dims, count = self.named[user].get("dim") or (), len(self.shape(node))
        return self.name(user) == "mean" and bool(dims) and all(axis % count < count - 1 for axis in dims)

    def reordered(self, node: fx.Node, given: dict[fx.Node, Tensor]) -> Any:
        first = given[node.all_input_nodes[0]]
        if self.name(node) in ("view", "reshape", "_unsafe_view"):
            return first.reshape(self.shape(node))
        arguments, named = fx.node.map_arg((node.args, node.kwargs), lambda each: given[each])
        return node.target(*arguments, **named)  # type: ignore[operator]


def arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of a node, by their names in the schema of its operation; none for a Python function."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {}
    return dict(zip((each.name for each in schema.arguments), node.args, strict=False)) | dict(node.kwargs)


def places_of(user: fx.Node, node: fx.Node) -> list[str]:
    """The arguments that a node is."""
    made: list[str] = []
    for name, each in arguments(user).items() or (("", each) for each in user.args):
        parts: Iterable[Any] = each if isinstance(each, list | tuple) else (each,)
        made += [name for part in parts if part is node]
    return made


def is_equal(tensor: Tensor, axis: int) -> bool:
    return bool((tensor == tensor.narrow(axis, 0, 1)).all())
