"""Propagation of shifts through the graph in one pass: every node gets a `NodeValue`, and every demand is solved when it is
made."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map_only

from addnorm.redundancy.algebra.linear_map import LinearMap
from addnorm.redundancy.execution.operation_names import name_of
from addnorm.redundancy.execution.tracked_parameters import TrackedParameter, TrackedParameters
from addnorm.redundancy.graph.elimination import Elimination
from addnorm.redundancy.graph.export import Program, example_value
from addnorm.redundancy.graph.like_factors import multiple, node_names
from addnorm.redundancy.graph.linear_images import image
from addnorm.redundancy.graph.node_aliases import NodeAliases
from addnorm.redundancy.graph.null_space import NullSpace
from addnorm.redundancy.graph.place_in_model import source_of
from addnorm.redundancy.graph.read_entries import Entries, as_read, read_entries, with_copies
from addnorm.redundancy.graph.rule import ALWAYS, AXIAL, MASKS, OpCall, Rule, default_rule
from addnorm.redundancy.graph.rules import rules
from addnorm.redundancy.graph.shift import LARGEST_MAP, DenseTerm, DiagonalTerm, Shift, Term, TooLarge, zero_shift
from addnorm.redundancy.graph.value import DataShift, NodeValue, Output, evaluated, values_in


@dataclass(frozen=True, kw_only=True)
class Blocker:
    """A demand that removes directions of one parameter."""

    op: str
    """Name of the operation in torch, such as `softmax` or `layer_norm`; `output` for the observed output."""
    module: str
    """Path of the calling module; empty for the model itself."""
    where: str
    """file:line of the innermost call outside torch; empty if unknown."""
    rank: int
    """Number of directions of the parameter that the demand concerns."""
    demand: str
    """The demand: `unchanged`, or for example `constant along axis 3`."""


@dataclass(frozen=True, kw_only=True)
class DerivedNullSpace:
    """The result of one pass through the graph."""

    space: NullSpace
    blockers: Mapping[str, tuple[Blocker, ...]]
    assumptions: tuple[str, ...]


def propagate(
    program: Program,
    weights: Callable[[str], torch.Tensor],
    tracked: TrackedParameters,
    on_node: Callable[[int, int], None] | None = None,
) -> DerivedNullSpace:
    """Derive the null space from a graph.

    Args:
        program: the graph, from `export`.
        weights: returns a parameter's or buffer's numbers by name; called when the graph first reads it. The numbers are freed
            after the last reader.
        tracked: the parameters that may move.
        on_node: is called with the number of operations done and of all.
    """
    walk = _GraphWalk(program, weights, tracked)
    for done, node in enumerate(program.nodes):
        walk.visit(node)
        if on_node is not None:
            on_node(done + 1, len(program.nodes))
    walk.observe()
    return walk.result()


class _GraphWalk:
    """One pass through the graph.

    The demands so far may free fewer coordinates than those in which an earlier value was expressed. Therefore a value
    is always read through `_current`, which expresses its shifts in the coordinates that are free now. A stale
    shift still depends on solved coordinates: a rule would find a dependence that the demands have removed, demand too
    much, and hide freedom (tests/redundancy/test_rules.py counts exactly).
    """

    def __init__(self, program: Program, weights: Callable[[str], torch.Tensor], tracked: TrackedParameters) -> None:
        self.program, self.weights, self.tracked = program, weights, tracked
        self.elimination = Elimination()
        # Every tracked coordinate starts free, in its parameter's own block. Blocks that an elimination adds are
        # attributed to the parameter that they came from, so that a blocker can be reported for it.
        self.blocks = {entry.name: self.elimination.new_block(entry.size, entry.name) for entry in tracked.entries}
        self.values: dict[fx.Node, NodeValue | list[NodeValue] | None] = {}
        self.blockers: dict[str, list[Blocker]] = {entry.name: [] for entry in tracked.entries}
        self.assumptions: dict[str, None] = {}
        self.table = rules()
        self.aliases = NodeAliases(program.nodes)
        self.names = node_names(program.nodes)
        self.read = read_entries(program.nodes, program.observed)
        self.needed = self._needed()
        # Weights in float64 take most of an audit's memory: each value is freed after its last reader. Observed values
        # stay until `observe` reads them.
        readers = {}
        for node in program.nodes:
            for source in self.aliases.sources(node) if node in self.needed else ():
                readers[source] = node
        self.last_read_by: dict[fx.Node, list[fx.Node]] = {}
        for source, last in readers.items():
            if source not in program.observed:
                self.last_read_by.setdefault(last, []).append(source)

    def visit(self, node: fx.Node) -> None:
        """Compute one node's value, and free the values that no later node reads."""
        if node not in self.needed:
            return
        # A weight is loaded when the first operation reads it (`_value`), not here, or all layers' weights would be
        # held at once.
        if node.op != "placeholder":
            holder = self.aliases.holder[node]
            self.values[node] = self._called(node) if holder is node else self._viewed(node, holder)
        for source in self.last_read_by.get(node, ()):
            self.values.pop(source, None)

    def observe(self) -> None:
        """Demand that the observed outputs do not move."""
        for node in self.program.observed:
            value = self._value(node)
            if isinstance(value, NodeValue):
                self._call(node, "output", None, [value.shape]).demand_unchanged(value)

    def result(self) -> DerivedNullSpace:
        """Express every parameter in the coordinates that are free after all demands."""
        maps: dict[str, dict[int, LinearMap]] = {}
        for name, block in self.blocks.items():
            # A block counts in `NullSpace.dim` as soon as one map names it. A map of zeros must not name it: the
            # dimension would count a direction along which nothing moves.
            maps[name] = {
                free: each
                for free, each in self.elimination.express(block).items()
                if each.width and len(each.rows) and (each.matrix is None or bool(each.matrix.any()))
            }
        return DerivedNullSpace(
            space=NullSpace(self.tracked, maps),
            blockers={name: tuple(blockers) for name, blockers in self.blockers.items()},
            assumptions=tuple(self.assumptions),
        )

    def _needed(self) -> set[fx.Node]:
        """Nodes on the path to an observed one, without those whose numbers are overwritten before they are read."""
        needed: set[fx.Node] = set()
        waiting = list(self.program.observed)
        while waiting:
            node = waiting.pop()
            if node not in needed:
                needed.add(node)
                waiting.extend(self.aliases.sources(node))
        return needed

    def _viewed(self, node: fx.Node, holder: fx.Node) -> NodeValue | list[NodeValue] | None:
        """The value of a node with the same numbers as another one."""
        value = self._current(holder)
        shape = tuple(node.meta["val"].shape)
        if not isinstance(value, NodeValue) or value.shape == shape:
            return value
        # The graph has no such view here, but the holder's numbers are these in another shape: the rule says which
        # facts survive. A fact that names the holder's node or axes (`multiple`, `fact`, `support`) is left out.
        (out,) = self._ruled(self._call(node, "view", node.target, [shape]), "view", (value,), {})
        number = None if value.known is None else value.known.reshape(shape)
        shift = self.elimination.current(out.shift)
        linear = image("view", (value,), shape, node.target)
        return NodeValue(
            shape, shift, number, out.data_shifts, out.sums, out.masked, node.name, out.plane, image=linear
        )

    def _value(self, node: fx.Node) -> NodeValue | list[NodeValue] | None:
        if node in self.values:
            return self.values[node]
        if node.op == "placeholder":
            value = self._placeholder(node)
            self.values[node] = value and replace(value, name=node.name)
            return self.values[node]
        raise KeyError(node.name)

    def _placeholder(self, node: fx.Node) -> NodeValue | None:
        example = example_value(node)
        if not isinstance(example, torch.Tensor):
            return None
        shape = tuple(example.shape)
        constant = self.program.constants.get(node.name)
        if constant is not None:
            return NodeValue(shape, zero_shift(shape), constant.detach().cpu())
        name = self.program.parameters.get(node.name)
        if name is None:
            return NodeValue(shape, zero_shift(shape))
        numbers = self.weights(name).detach().cpu()
        known = (
            numbers if name in self.program.buffers or not numbers.is_floating_point() else numbers.to(torch.float64)
        )
        entry = self.tracked.by_name.get(name)
        if entry is None:
            return NodeValue(shape, zero_shift(shape), known)
        return NodeValue(shape, self.elimination.current(_initial_shift(entry, self.blocks[entry.name])), known)

    def _called(self, node: fx.Node) -> NodeValue | list[NodeValue] | None:
        arguments: Any = (node.args, node.kwargs)
        args, kwargs = fx.map_arg(arguments, self._current)
        # The copies are for this call alone. Another reader may read those rows, so the stored value keeps them as they
        # are.
        if unread := as_read(node, self.read):
            args, kwargs = fx.map_arg(arguments, lambda each: self._read(each, unread.get(each)))
        if getattr(node.target, "__name__", "") == "getitem" and isinstance(args[0], list):
            return replace(
                args[0][int(args[1])], name=self.names.of[node]
            )  # the outputs of one operation are other numbers
        example = example_value(node)
        shapes = _shapes(example)
        if not shapes:
            return None
        inputs = values_in([args, kwargs])
        op = name_of(node.target)
        call = self._call(node, op, node.target, shapes)
        first = (
            example if isinstance(example, torch.Tensor) else next(e for e in example if isinstance(e, torch.Tensor))
        )
        call.floating = bool(first.is_floating_point() or first.is_complex())
        known = evaluated(node.target, args, kwargs, inputs)
        moving = any(value.moves for value in inputs)
        # A rule is also applied without any shift if it provides facts about data (sums, planes) that later rules use.
        informative = any(value.sums or value.plane for value in inputs)
        needs_rule = moving or (known is None and (op in ALWAYS or informative))
        if needs_rule and _is_complex(node):
            outs = default_rule(call, args, kwargs)  # maps are real and cannot express a complex factor
        else:
            outs = self._ruled(call, op, args, kwargs) if needs_rule else call.all_unmoved()
        plain = not kwargs and len(shapes) == 1 and call.floating
        same = multiple(op, node.target, args, shapes[0]) if plain else None
        linear = image(op, args, shapes[0], node.target) if plain and known is None else None
        # A demand of the rule may have solved coordinates that its own result, made before, still names: hence
        # `updated`.
        values = [
            NodeValue(
                shape,
                out.shift,
                number,
                self._data_shifts(call, out),
                out.sums,
                out.masked,
                self.names.of[node],
                out.plane,
                out.fact,
                out.support,
                same,
                linear,
            ).updated(self.elimination.current)
            for shape, out, number in zip(shapes, outs, known or [None] * len(shapes), strict=True)
        ]
        return values[0] if isinstance(example, torch.Tensor) else values

    def _ruled(self, call: OpCall, op: str, args: Any, kwargs: Any) -> list[Output]:
        chosen: Rule = self.table.get(op, default_rule)
        # A scalar has no axes; torch allows dim 0 and -1 there, which mean nothing.
        if op in AXIAL and args and isinstance(args[0], NodeValue) and not args[0].shape:
            chosen = default_rule
        if op not in MASKS:
            call.demand_unchanged(*(each for each in values_in([args, kwargs]) if each.masked))
            args, kwargs = tree_map_only(NodeValue, lambda each: each.updated(call.current), (args, kwargs))
        try:
            outs = chosen(call, *args, **kwargs)
        # The map is given up, not the audit. What the rule demanded before stays: the default rule, which demands that
        # no input moves, implies it.
        except TooLarge:
            call.assume(
                f"the shift at {call.op} in {call.module or 'the model'} is too large to represent and counts as effective"
            )
            outs = default_rule(call, *args, **kwargs)
        return outs if isinstance(outs, list) else [outs]

    def _data_shifts(self, call: OpCall, out: Output) -> tuple[DataShift, ...]:
        """The data-dependent shifts that are still possible. One that is constant along no axis, and of which no factor is
        known, can never cancel, so it is demanded to vanish here."""
        kept = []
        for each in out.data_shifts:
            # The demand could wait for a reader that does not cancel; it is the same demand. Made here, it keeps the
            # lists of later values short.
            source = self.elimination.current(each.source)
            last = not (each.axes or each.relaxation or each.zeroed or each.product)
            if source and last:
                call.demand_zero(source)
            elif source:
                kept.append(each)
        return tuple(kept)

    def _current(self, node: fx.Node) -> Any:
        """A node's value in the coordinates that are free now."""
        value = self._value(node)
        if isinstance(value, list):
            return [self._updated(each) for each in value]
        return None if value is None else self._updated(value)

    def _read(self, node: fx.Node, entries: Entries | None) -> Any:
        """A node's value in the coordinates that are free now, with copies for the entries that are not read."""
        value = self._current(node)
        return with_copies(value, entries) if entries and isinstance(value, NodeValue) else value

    def _updated(self, value: NodeValue) -> NodeValue:
        return value.updated(self.elimination.current)

    def _call(self, node: fx.Node, op: str, target: Any, shapes: list[tuple[int, ...]]) -> OpCall:
        module, where = source_of(node)
        return OpCall(
            op=op,
            target=target,
            shapes=shapes,
            elimination=self.elimination,
            record=self._record,
            assume=lambda sentence: self.assumptions.setdefault(sentence),
            module=module,
            where=where,
            arguments=tuple(node.args),
            shared=self.names.shared,
            graphs=_graphs(node),
            read=frozenset(
                cast(int, user.args[1])
                for user in node.users
                if user.target is operator.getitem and user in self.needed
            ),
        )

    def _record(self, call: OpCall, demand: str, taken: dict[int, int]) -> None:
        ranks: dict[str, int] = {}
        for block, freedom in taken.items():
            owner = self.elimination.owner[block]
            ranks[owner] = ranks.get(owner, 0) + freedom
        for name, freedom in ranks.items():
            # Several blocks of one owner, or a block of constants, may have more coordinates than the parameter has
            # entries.
            size = self.tracked[name].size
            self.blockers[name].append(
                Blocker(op=call.op, module=call.module, where=call.where, rank=min(freedom, size), demand=demand)
            )


def _graphs(node: fx.Node) -> tuple[fx.GraphModule, ...]:
    """Functions that an operation takes, as graphs."""
    named = [each for each in node.all_input_nodes if each.op == "get_attr"]
    attributes = [getattr(each.graph.owning_module, str(each.target), None) for each in named]
    return tuple(each for each in attributes if isinstance(each, fx.GraphModule))


def _initial_shift(entry: TrackedParameter, block: int) -> Shift:
    """The shift of a parameter by its own coordinates."""
    if entry.coordinates == "common row":
        term: Term = DiagonalTerm(
            torch.ones(entry.size, dtype=torch.float64), len(entry.shape) - 1, len(entry.shape), 0.0
        )
        return Shift(entry.shape, {block: term})
    wide = [axis for axis, size in enumerate(entry.shape) if size > 1]
    if len(wide) == 1:
        term = DiagonalTerm(torch.ones(entry.size, dtype=torch.float64), wide[0], len(entry.shape), 0.0)
    elif prod(entry.shape) ** 2 > LARGEST_MAP:
        raise TooLarge
    else:
        term = DenseTerm(torch.eye(entry.size, dtype=torch.float64).reshape(entry.size, *entry.shape), 0.0)
    return Shift(entry.shape, {block: term})


def _is_complex(node: fx.Node) -> bool:
    """True if a call takes or returns complex numbers."""
    numbers = [*node.args, *node.kwargs.values()]
    examples = [leaf for each in (node, *node.all_input_nodes) for leaf in tree_leaves(example_value(each))]
    return any(isinstance(each, complex) for each in numbers) or any(
        isinstance(each, torch.Tensor) and each.is_complex() for each in examples
    )


def _shapes(example: Any) -> list[tuple[int, ...]]:
    if isinstance(example, torch.Tensor):
        return [tuple(example.shape)]
    if isinstance(example, tuple | list):
        return [tuple(each.shape) if isinstance(each, torch.Tensor) else () for each in example]
    return []
