"""Propagation of actions through the exported graph, operation by operation, beside the numbers at a generic point.

An operation without a rule asks that nothing which it reads moves. This is always sufficient, so that every solution is a
symmetry; that no symmetry is missed is what the numerical method checks.
"""

import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.operation_names import SOFTMAXES, name_of
from addnorm.redundancy.graph.export import Program
from addnorm.redundancy.graph.place_in_model import source_of
from addnorm.symmetry.actions import rules as _rules  # noqa: F401 - registers the rules
from addnorm.symmetry.actions.call import RULES, Call, Operand
from addnorm.symmetry.actions.equations import ZERO, Ids
from addnorm.symmetry.actions.look_ups import RowsTogether, rows_together, size_of
from addnorm.symmetry.actions.reading import unread_directions
from addnorm.symmetry.actions.rules.pointwise import never_bounds, settled
from addnorm.symmetry.actions.rules.routing import GROUPED, by_route
from addnorm.symmetry.actions.rules.shapes import FILLED, INDEXING
from addnorm.symmetry.actions.system import NoRule, RowMoves, System
from addnorm.symmetry.actions.uses import Derived
from addnorm.symmetry.actions.values import Fixed, Routed, Square, State, Value, Weight
from addnorm.symmetry.actions.whole_sums import rotating_products

_LOWER = frozenset({torch.float32, torch.float16, torch.bfloat16})
_LARGEST_DERIVED = 4096
"""Largest number of entries of a weight that is computed from others."""
_AT_ANY_STRIDE: Mapping[Any, Any] = {torch.ops.aten.view.default: torch.ops.aten.reshape.default}
"""An attention in float64 may return other strides than the exported one, at which a view does not fit."""
_KINKED = frozenset(
    {"abs", "amax", "amin", "ceil", "clamp", "clamp_max", "clamp_min", "floor", "hardsigmoid", "hardtanh", "leaky_relu"}
    | {"max", "maximum", "min", "minimum", "relu", "relu6", "round", "sign", "trunc"}
)
"""Operations on weights that are other functions at other weights, so that a move found at one point may fail further on."""
_KEEPING_MASKS = INDEXING | {"add", "sub", "mul", "div", "cat", "where", "masked_fill", "max", "amax", "getitem"}
"""Operations after which a very low score is still one."""
_KEEPING_SQUARES = frozenset({"mean", "sum", "to", "_to_copy", "alias"})


@dataclass(frozen=True)
class Propagation:
    """The equations of a graph."""

    system: System
    tangents: Mapping[str, Ids]
    """The unknown tangent of every parameter that the graph reads."""


def propagate(
    program: Program,
    tensors: Callable[[str], Tensor],
    inputs: Callable[[str], Tensor],
    names: Mapping[str, str],
    earlier: Propagation | None = None,
    together: RowsTogether | None = None,
) -> Propagation:
    """Write the equations of all operations.

    Args:
        program: the exported model.
        tensors: the numbers of a parameter or buffer, by name.
        inputs: the numbers of an input, by placeholder.
        names: the first name of every parameter, by any of its names.
        earlier: the equations at other inputs, which are to hold as well; they are added to.
        together: what rows of tables may do that are only read together.
    """
    with torch.no_grad():
        return _propagated(program, tensors, inputs, names, earlier, together)


def rows_read_together(program: Program, model: nn.Module, inputs: Sequence[Inputs]) -> RowsTogether:
    """The moves of rows that several inputs only read together."""
    tensors = held(model)

    def numbers(each: Inputs) -> Callable[[fx.Node], Tensor]:
        of_input = given(program, each)
        return lambda node: _number(program, node.name, tensors.__getitem__, of_input)

    with torch.no_grad():
        return rows_together(program, [numbers(each) for each in inputs], _computed)


def held(model: nn.Module) -> dict[str, Tensor]:
    """All tensors of a model, by each of their names."""
    return {
        **dict(model.named_buffers(remove_duplicate=False)),
        **dict(model.named_parameters(remove_duplicate=False)),
    }


def given(program: Program, inputs: Inputs) -> Callable[[str], Tensor]:
    """The input tensors by placeholder, in the order in which the export flattens them."""
    places = [
        each.name
        for each in program.nodes[0].graph.nodes
        if each.op == "placeholder" and each.name not in program.parameters and each.name not in program.constants
    ]
    leaves = tree_leaves((inputs.args, dict(inputs.kwargs)))
    return dict(zip(places[len(places) - len(leaves) :], leaves, strict=True)).__getitem__


def _propagated(
    program: Program,
    tensors: Callable[[str], Tensor],
    inputs: Callable[[str], Tensor],
    names: Mapping[str, str],
    earlier: Propagation | None,
    together: RowsTogether | None,
) -> Propagation:
    system = earlier.system if earlier else System()
    numbers: dict[fx.Node, Any] = {}
    states: dict[fx.Node, State] = {}
    tangents: dict[str, Ids] = dict(earlier.tangents) if earlier else {}
    unread = unread_directions(
        program, lambda node: _number(program, node.name, tensors, inputs), lambda node, made: _computed(node, made)
    )
    scores, rotating = _read_by_softmax_alone(program), rotating_products(program)
    extra = (
        _of_rows(program, system, together, lambda name: _number(program, name, tensors, inputs)) if together else {}
    )
    for node in program.nodes:
        if node.op == "placeholder":
            numbers[node], states[node] = _placeholder(program, node.name, tensors, inputs, names, system, tangents)
        elif node.op == "call_function":
            system.path, system.unread = source_of(node)[0], unread.get(node)
            system.only_softmax, system.is_rotating = node in scores, node in rotating
            system.rows = extra.get(node, RowMoves())
            numbers[node] = _computed(node, numbers)
            states[node] = _state(system, node, numbers, states)
        else:
            raise NotImplementedError(node.op)
    for node in program.observed:
        _stop(system, states[node])
    return Propagation(system=system, tangents=tangents)


def _of_rows(
    program: Program, system: System, together: RowsTogether, number: Callable[[str], Tensor]
) -> dict[fx.Node, RowMoves]:
    """The unknowns of what rows of tables may do that are only read together, by look-up."""
    made: dict[fx.Node, RowMoves] = defaultdict(RowMoves)
    for part in (each for one in together.traded for each in one):
        constants = system.equations.unknowns(size_of(next(iter(part)), 1))
        system.constants.append(constants)
        for node, rows in part.items():
            made[node].traded.append((rows, constants))
    for each in together.own:
        tables: list[Any] = [node.args[0] for node in each.datum]
        if any(table.op != "placeholder" for table in tables):
            continue
        vectors = [number(table.name)[row] for table, row in zip(tables, each.datum.values(), strict=True)]
        scale = np.full(size_of(each.look_up, 0), ZERO)
        scale[each.row] = system.equations.unknowns(1)[0]
        system.lengths.append(scale)
        system.equations.require((scale[[each.row], None], np.ones((1, 1))), nearly=True)
        made[each.look_up].scaled.append((scale, torch.stack(vectors).sum(0).detach().numpy()))
    return made


def _read_by_softmax_alone(program: Program) -> set[fx.Node]:
    """Nodes whose numbers reach the outputs through softmaxes only, of which a mask cannot be told from minus infinity."""
    nodes, made = set(program.nodes), set[fx.Node]()

    def hides(user: fx.Node, node: fx.Node) -> bool:
        name = _name(user)
        if name == "scaled_dot_product_attention":
            return node not in user.args[:3] and node in (*user.args[3:4], user.kwargs.get("attn_mask"))
        return name in SOFTMAXES or (user in made and name in _KEEPING_MASKS)

    for node in reversed(program.nodes):
        users = [each for each in node.users if each in nodes or each.op == "output"]
        if node not in program.observed and all(hides(user, node) for user in users):
            made.add(node)
    return made


def _name(node: fx.Node) -> str:
    return "getitem" if node.target is operator.getitem else name_of(node.target)


def _placeholder(
    program: Program,
    name: str,
    tensors: Callable[[str], Tensor],
    inputs: Callable[[str], Tensor],
    names: Mapping[str, str],
    system: System,
    tangents: dict[str, Ids],
) -> tuple[Tensor, State]:
    number = _number(program, name, tensors, inputs)
    own = program.parameters.get(name)
    if own is not None:
        own = names.get(own, own)
        if own in program.buffers or not number.is_floating_point():
            return number, Fixed(constant=True)
        if own not in tangents:
            tangents[own] = system.equations.unknowns(*number.shape)
        return number, Weight(tangents[own])
    return number, Fixed(constant=name in program.constants or not number.is_floating_point())


def _number(program: Program, name: str, tensors: Callable[[str], Tensor], inputs: Callable[[str], Tensor]) -> Tensor:
    """The numbers of a parameter, a constant or an input."""
    own = program.parameters.get(name)
    if own is not None:
        return _wide(tensors(own).detach())
    return _wide(program.constants[name] if name in program.constants else inputs(name))


def _wide(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.dtype in _LOWER else tensor


def _computed(node: fx.Node, numbers: Mapping[fx.Node, Any]) -> Any:
    """The node's numbers, in float64 wherever the model asks for less."""

    def plain(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return numbers[value]
        return torch.float64 if isinstance(value, torch.dtype) and value in _LOWER else value

    arguments = fx.node.map_aggregate(node.args, plain)
    keywords = fx.node.map_aggregate(node.kwargs, plain)
    if _name(node) == "view.dtype":  # the bits are those of the model's own type
        arguments = arguments[0].to(node.args[0].meta["val"].dtype), node.args[1]  # type: ignore[union-attr]
    target: Any = _AT_ANY_STRIDE.get(node.target, node.target)
    if target is torch.ops.aten.copy.default:  # the functional form has no derivative
        given: Any = arguments
        made: Any = given[1].to(given[0].dtype).expand_as(given[0]).clone()
    else:
        made = target(*arguments, **keywords)
        if _name(node) in ("new_empty", "empty_like", "empty"):
            made.zero_()  # whatever is in it, the model writes over it
    return _wide(made) if isinstance(made, Tensor) else made


def _state(system: System, node: fx.Node, numbers: Mapping[fx.Node, Any], states: Mapping[fx.Node, State]) -> State:
    if node.target is operator.getitem:
        whole: Any = states[node.args[0]]  # type: ignore[index]
        at: Any = node.args[1]
        return whole[at] if isinstance(whole, tuple) else whole
    read = [states[each] for each in node.all_input_nodes]
    if all(isinstance(each, Fixed) for each in read):
        drawn = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())  # random numbers are no constants
        is_constant = [isinstance(each, Fixed) and each.constant for each in read]
        nothing = [
            known and not bool(numbers[at].any()) for known, at in zip(is_constant, node.all_input_nodes, strict=True)
        ]
        # Nothing times any number is nothing, as at the start of a recurrence.
        is_nothing = _name(node) == "mul" and any(nothing)
        return Fixed(constant=not drawn and (all(is_constant) or is_nothing or _name(node) in FILLED))
    call = _call(system, node, numbers, states)
    try:
        if any(isinstance(each, Routed) for each in read) and call.name not in GROUPED:
            return by_route(call, _applied)
        if not any(isinstance(each, Value | Square | Routed | tuple) for each in read) and call.name not in (
            "embedding",
            "scaled_dot_product_attention",
        ):
            derived = _derived(call, read)
            if derived is not None:
                return derived
            try:
                return _applied(call)
            except NoRule:  # a product of weights and constants in which no datum has an axis of its own
                derived = _derived(call, read, with_products=True)
                if derived is None:
                    raise
                return derived
        return _applied(call)
    except NoRule:
        for each in read:
            _stop(system, each)
        return Fixed(constant=False)


def _applied(call: Call) -> State:
    function = RULES.get(call.name)
    if function is None:
        raise NoRule
    return function(call)


def _call(system: System, node: fx.Node, numbers: Mapping[fx.Node, Any], states: Mapping[fx.Node, State]) -> Call:
    target: Any = node.target
    name = _name(node)

    def operand(value: Any) -> Any:
        if isinstance(value, fx.Node):
            state = states[value]
            if isinstance(state, Square) and name not in _KEEPING_SQUARES:
                state = settled(system, state)
            return Operand(numbers[value], state)
        return torch.float64 if isinstance(value, torch.dtype) and value in _LOWER else value

    schema = getattr(target, "_schema", None)
    if schema is None:
        return Call(system, target, {}, numbers[node])
    named = {each.name: operand_of(value, operand) for each, value in zip(schema.arguments, node.args, strict=False)}
    named |= {key: operand_of(value, operand) for key, value in node.kwargs.items()}
    return Call(system, target, named, numbers[node])


def operand_of(value: Any, function: Callable[[Any], Any]) -> Any:
    """Map an argument, also inside of lists."""
    if isinstance(value, list | tuple):
        return [operand_of(each, function) for each in value]
    return function(value)


def _derived(call: Call, read: list[State], *, with_products: bool = False) -> State | None:
    """A weight computed from weights and constants; None if a rule must decide."""
    operands = call.operands()
    if not isinstance(call.result, Tensor):
        return None
    if call.name in INDEXING or call.name in ("cat", "stack"):
        return None
    if not call.result.is_floating_point():
        return None
    if any(not isinstance(each.state, Weight) and not each.constant for each in operands):
        return None
    moving = [each for each in operands if isinstance(each.state, Weight)]
    if not with_products and call.name in ("linear", "matmul", "addmm", "mm", "bmm") and len(moving) == 1:
        return None
    if call.result.numel() > _LARGEST_DERIVED or (call.name in _KINKED and not never_bounds(call)):
        raise NoRule
    ids = call.system.equations.unknowns(*call.result.shape)
    terms = [(ids.reshape(-1, 1), -np.ones((1, 1)))]
    by_id = {id(each): each.number.double() for each in moving}
    for each in moving:

        def function(number: Tensor, each: Operand = each) -> Tensor:
            result: Tensor = call.run(lambda given: number if given is each else by_id.get(id(given), given.number))
            return result.double()

        if not isinstance(each.state, Weight):
            raise NoRule
        jacobian = torch.autograd.functional.jacobian(function, each.number.double())
        matrix = jacobian.reshape(call.result.numel(), -1).numpy()
        own = each.state.ids.reshape(-1)
        if matrix.shape[0] * matrix.shape[1] > _LARGEST_DERIVED**2:
            raise NoRule
        terms.append((np.broadcast_to(own, matrix.shape), matrix))
    call.system.equations.require(*terms)
    call.system.derived.append(
        Derived(
            ids,
            tuple(each.state.ids for each in moving if isinstance(each.state, Weight)),
            _function(call, moving),
            tuple(each.number.double() for each in moving),
        )
    )
    return Weight(ids)


def _function(call: Call, moving: list[Operand]) -> Callable[[tuple[Tensor, ...]], Tensor]:
    def function(given: tuple[Tensor, ...]) -> Tensor:
        by_id = {id(each): number for each, number in zip(moving, given, strict=True)}
        result: Tensor = call.run(lambda each: by_id.get(id(each), each.number))
        return result.double()

    return function


def _stop(system: System, state: State) -> None:
    """Require that what an operation reads does not move."""
    if isinstance(state, Value):
        system.stop(state)
    elif isinstance(state, Square):
        system.stop(state.of)
    elif isinstance(state, Weight):
        system.equations.vanish(state.ids)
    elif isinstance(state, tuple | Routed):
        for each in state if isinstance(state, tuple) else (part for _, part in state.parts):
            _stop(system, each)
