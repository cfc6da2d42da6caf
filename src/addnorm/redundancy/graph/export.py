"""Export of the model as a flat graph of operations, with `torch.export`.

A non-strict export is followed by `run_decompositions({})` if the graph is not functional yet. With the empty table the graph
becomes functional and inlined, but linear, layer_norm, attention and softmax stay single operations, for which there are rules.
Regions without gradients, such as a rotary table's, are inlined here, because most models need that alone.
"""

import logging
import operator
import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import fx, nn
from torch.fx import proxy
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.nn.modules import transformer
from torch.utils._pytree import tree_map

from addnorm.errors import AddnormError, InputError
from addnorm.redundancy.execution.copies import held_tensors, plain_copy
from addnorm.redundancy.execution.inputs import Inputs, bind, cloned
from addnorm.redundancy.execution.observation import Observe, Observed
from addnorm.redundancy.graph.place_in_model import PlaceInModel

_EXPORTING = threading.RLock()
"""Serialises exports: `torch.export` keeps global state (fake-tensor and tracing modes)."""

_PREFIX = "model."

_UPDATING = torch.ops.aten._native_batch_norm_legit_functional.default
"""A batch norm that returns new running statistics; in training it reads the old ones only to update them."""


_WITHOUT_GRADIENT = torch.ops.higher_order.wrap_with_set_grad_enabled
"""A region under `torch.no_grad`: a flag, a graph of its own, and the graph's inputs."""

_FUNCTIONAL_FORMS: dict[Any, Any] = {torch.ops.aten.detach_.default: torch.ops.aten.detach.default}
"""Operations whose schema says that they write their argument, although no number changes: tracing detaches constants."""

_FIRST_NAMES = (
    {"multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div", "negative": "neg"}
    | {"absolute": "abs", "clip": "clamp", "concat": "cat", "concatenate": "cat"}
    | {"swapdims": "transpose", "moveaxis": "movedim", "linalg_matmul": "matmul"}
    | {"special_expit": "sigmoid", "special_softmax": "softmax"}
)
"""Operations that torch has under two names, which an exported graph keeps apart: name -> the name that the rules know."""


def _functional_form(target: Any) -> Any:
    """The operation under the name, and in the form, that the rules know."""
    name = target._schema.name.removeprefix("aten::") if hasattr(target, "_schema") else ""
    packet = getattr(torch.ops.aten, _FIRST_NAMES[name]) if name in _FIRST_NAMES else None
    for overload in packet.overloads() if packet else ():
        known = getattr(packet, overload)
        if str(known._schema).partition("(")[2] == str(target._schema).partition("(")[2]:
            return known
    return _FUNCTIONAL_FORMS.get(target, target)


class NotExported(AddnormError):
    """`torch.export` failed on the model; the message gives the reason. The numerical method needs no export."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """An exported model."""

    nodes: tuple[fx.Node, ...]
    """Nodes on the path to an observed output, in order, including placeholders."""
    observed: tuple[fx.Node, ...]
    parameters: Mapping[str, str]
    """Placeholder -> name of the model's parameter or buffer, except buffers that pass data from one call to the next."""
    buffers: frozenset[str]
    """Names of the buffers among them."""
    constants: Mapping[str, torch.Tensor]
    """Placeholder -> a tensor created while tracing."""
    rewritten: tuple[str, ...]
    """Names of the parameters that the model itself changes in its first call."""
    states: tuple[str, ...] = ()
    """Names of the buffers, and of tensors in attributes, that pass data from one call to the next."""


class _Traced(Observed):
    """The observed tensors, then what the call left in buffers and attributes that it assigned to. `torch.export` itself
    drops such an assignment below the outermost module without a word."""

    def __init__(self, model: nn.Module, observe: Observe) -> None:
        super().__init__(model, observe)
        # In an object, since an export sets the attributes themselves back.
        self.left = SimpleNamespace(names=())

    def forward(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        before = held_tensors(self.model)
        outputs = super().forward(*args, **kwargs)
        left = {name: each for name, each in held_tensors(self.model).items() if each is not before.get(name)}
        self.left.names = tuple(left)
        return *outputs, *left.values()


def export(model: nn.Module, inputs: object, *, observe: Observe, training: bool) -> Program:
    """Trace a copy of the model on example inputs.

    Raises:
        NotExported: `torch.export` raised.
    """
    bound = bind(inputs)
    spare = _Traced(plain_copy(model).train(training), observe)
    spare.train(training)
    example = tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, bound)
    with _EXPORTING, _undisturbed():
        program = _traced_either(spare, example)
        rewritten = _written_parameters(program)
        if rewritten:
            # RWKV divides weights by powers of two in its first call. The graph of later calls has them as they are.
            with torch.no_grad():
                spare(*cloned(example).args, **cloned(example).kwargs)
            program = _traced_either(spare, example)
        for name in _written_parameters(program):
            raise NotExported(f"expected calls that leave the parameters as they are, got one that writes {name}")
    signature = program.graph_signature
    parameters: dict[str, str] = {}
    buffers: set[str] = set()
    constants: dict[str, torch.Tensor] = {}
    kept: dict[str, str] = {}  # placeholder -> name of what one call may leave to the next
    for spec in signature.input_specs:
        name = spec.arg.name
        if spec.kind.name in ("PARAMETER", "BUFFER") and spec.target is not None:
            parameters[name] = spec.target.removeprefix(_PREFIX)
            if spec.kind.name == "BUFFER":
                buffers.add(parameters[name])
                kept[name] = parameters[name]
        elif spec.kind.name == "CONSTANT_TENSOR" and spec.target is not None:
            constant = program.constants[spec.target]
            kept[name] = spec.target.removeprefix(_PREFIX)
            # A parameter that a model keeps in a list or closure is lifted as a constant. Left one, it would not move,
            # and its bias would count as having no effect.
            owner = _owner(constant, spare.model)
            if owner is None:
                constants[name] = constant
            else:
                parameters[name] = owner
    graph = program.graph
    for node in graph.nodes:
        value = node.meta.get("val")
        # A shape or a Python number that comes from data is that of the example: a proof about this graph would say
        # nothing about other inputs.
        if isinstance(value, torch.Tensor) and not all(isinstance(size, int) for size in value.shape):
            raise NotExported(f"expected shapes that do not depend on the data, got one that does at {node.name}")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise NotExported(f"expected numbers that stay in tensors, got a Python number from data at {node.name}")
    last = next(node for node in graph.nodes if node.op == "output")
    ends = {node.name: node for node in last.all_input_nodes}
    outputs = [spec.arg.name for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    count = len(outputs) - len(spare.left.names)
    observed = tuple(ends[name] for name in dict.fromkeys(outputs[:count]) if name in ends)
    written = dict(zip(spare.left.names, outputs[count:], strict=True)) | {
        spec.target.removeprefix(_PREFIX): spec.arg.name
        for spec in signature.output_specs
        if spec.kind.name == "BUFFER_MUTATION" and spec.target is not None
    }
    states, updates = _states(
        observed, kept, {name: ends[output] for name, output in written.items() if output in ends}
    )
    observed = tuple(dict.fromkeys((*observed, *updates)))
    needed = _ancestors(observed)
    nodes = tuple(node for node in graph.nodes if node in needed)
    return Program(
        nodes=nodes,
        observed=observed,
        parameters={name: own for name, own in parameters.items() if name not in states},
        buffers=frozenset(buffers),
        constants={name: constant for name, constant in constants.items() if name not in states},
        rewritten=tuple(rewritten),
        states=tuple(own for name, own in kept.items() if name in states),
    )


def _states(
    observed: Sequence[fx.Node], kept: Mapping[str, str], written: Mapping[str, fx.Node]
) -> tuple[frozenset[str], tuple[fx.Node, ...]]:
    """Buffers and attributes that a call writes and the output, or another of them, reads, so that the next call reads what
    this one wrote.

    Their numbers are data, and what is written counts as an output. Returns the placeholders and what is written.
    """
    states: dict[str, fx.Node] = {}
    while True:
        reached = {node.name for node in _ancestors((*observed, *states.values()), statistics=False)}
        # A buffer that only another such buffer reads counts too, so the set grows until a round adds nothing.
        more = {node: written[name] for node, name in kept.items() if node in reached and name in written}
        if more.keys() <= states.keys():
            return frozenset(states), tuple(states.values())
        states |= more


def _ancestors(ends: Iterable[fx.Node], *, statistics: bool = True) -> set[fx.Node]:
    """The nodes on the path to `ends`, optionally without those that a norm in training reads only to update its statistics."""
    ancestors: set[fx.Node] = set()
    waiting = list(ends)
    while waiting:
        node = waiting.pop()
        if node not in ancestors:
            ancestors.add(node)
            updated = () if statistics or node.target != _UPDATING or node.args[5] is not True else node.args[3:5]
            waiting.extend(each for each in node.all_input_nodes if each not in updated)
    return ancestors


def _owner(tensor: torch.Tensor, model: nn.Module) -> str | None:
    """The name of the parameter that equals a traced constant: models also keep parameters in lists and closures.

    Raises:
        NotExported: the constant is a part of a parameter.
    """
    for name, parameter in model.named_parameters():
        if parameter.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr() and tensor.numel():
            if (parameter.shape, parameter.stride()) == (tensor.shape, tensor.stride()):
                return name
            raise NotExported(
                f"expected tensors that are whole parameters, got a part of {name} that the model keeps elsewhere"
            )
    return None


def _written_parameters(program: torch.export.ExportedProgram) -> list[str]:
    outputs = program.graph_signature.output_specs
    return [str(each.target).removeprefix(_PREFIX) for each in outputs if each.kind.name == "PARAMETER_MUTATION"]


def _traced_either(model: nn.Module, inputs: Inputs) -> torch.export.ExportedProgram:
    try:
        return _traced(model, inputs, is_frozen=False)
    except NotExported as error:
        if not isinstance(error.__cause__, NotImplementedError):
            raise
        return _traced(model, inputs, is_frozen=True)  # flex_attention has no backward pass on the CPU


def _traced(model: nn.Module, inputs: Inputs, *, is_frozen: bool) -> torch.export.ExportedProgram:
    for parameter in model.parameters():
        # With frozen parameters attention would use a fused operation that has no rule.
        parameter.requires_grad_(parameter.is_floating_point() and not is_frozen)
    try:
        # Only the graph is read, so that torch need not write and compile Python for it after every one of its passes.
        with _use_lazy_graph_module(True):
            program = torch.export.export(model, inputs.args, inputs.kwargs, strict=False)
        if not _plain(program.graph_module):
            program = program.run_decompositions({})
        _inline(program.graph_module)
        return program
    except InputError:
        raise
    # Tracing runs the user's code on fake tensors and may raise anything that this code raises.
    except Exception as error:
        line = next((line for line in str(error).splitlines() if line.strip()), "no message")
        raise NotExported(f"torch.export cannot follow this model: {type(error).__name__}: {line.strip()}") from error


def _plain(module: fx.GraphModule) -> bool:
    """True if every operation is functional already, also inside of regions without gradients, so that the second, slower
    half of the export is not needed."""
    bodies: list[Any] = []
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is _WITHOUT_GRADIENT:
            # What leaves the region as an output of the model is listed by the name of its getitem node, which inlining loses.
            if any(user.target is not operator.getitem or _is_output(user) for user in node.users):
                return False
            body: Any = node.args[1]
            bodies.append(body)
            if not _plain(getattr(module, body.target)):
                return False
        elif node.op == "call_function" and node.target is not operator.getitem:
            if not isinstance(node.target, torch._ops.OpOverload):
                return False
            if node.target._schema.is_mutable and node.target not in _FUNCTIONAL_FORMS:
                return False
    return not any(
        node.op == "call_module" or (node.op == "get_attr" and node not in bodies) for node in module.graph.nodes
    )


def _is_output(node: fx.Node) -> bool:
    return any(user.op == "output" for user in node.users)


def _inline(module: fx.GraphModule) -> None:
    """Replace every region without gradients by its operations, and operations by their functional forms."""
    graph = module.graph
    for node in graph.nodes:
        node.target = _functional_form(node.target)
    for node in [node for node in graph.nodes if node.target is _WITHOUT_GRADIENT]:
        arguments: tuple[Any, ...] = node.args
        _, body, *operands = arguments
        region = getattr(module, body.target)
        # Regions inside the region first: its nodes are copied as they are.
        _inline(region)
        places = [each for each in region.graph.nodes if each.op == "placeholder"]
        with graph.inserting_before(node):
            results: Any = graph.graph_copy(region.graph, dict(zip(places, operands, strict=True)))
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])
            graph.erase_node(user)
        graph.erase_node(node)
        graph.erase_node(body)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Restore torch's random state, default type and gradient mode afterwards, and silence the tracer's own warnings
    and logs."""
    dtype = torch.get_default_dtype()
    detected, stacks = vars(transformer)["_detect_is_causal_mask"], vars(proxy).get("CapturedTraceback")
    try:
        vars(proxy)["CapturedTraceback"] = PlaceInModel(_Traced.forward.__code__)
        # nn.Transformer compares a mask's numbers, which a trace does not have, to learn that it need not read it. It
        # reads it then.
        vars(transformer)["_detect_is_causal_mask"] = lambda mask, is_causal=None, size=None: is_causal is True
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), _without_logs(), warnings.catch_warnings():
            # Tracing warns about deprecated parts of torch, which the user cannot change.
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_default_dtype(dtype)
        vars(transformer)["_detect_is_causal_mask"] = detected
        vars(proxy)["CapturedTraceback"] = stacks


@contextmanager
def _without_logs() -> Iterator[None]:
    """Keep torch's own logs off the terminal, which print a whole graph if an export fails, unless TORCH_LOGS asks for
    them. What the model itself prints stays."""
    # Imported here: it brings 440 further modules (half a second, 12 MB), which a plan without biases never needs.
    from torch.export import _trace

    asked = bool(os.environ.get("TORCH_LOGS"))
    known = {} if asked else dict(logging.root.manager.loggerDict)
    # Not by their levels: each change of a level clears the caches of all loggers, and torch has hundreds.
    loggers = [
        each
        for name, each in known.items()
        if name.partition(".")[0] == "torch" and isinstance(each, logging.Logger) and not each.disabled
    ]
    try:
        for logger in loggers:
            logger.disabled = True
        if not asked:
            # The partial graph of a failed export is not logged but printed; a global of this name precedes the builtin.
            vars(_trace)["print"] = lambda *_, **__: None
        yield
    finally:
        vars(_trace).pop("print", None)
        for logger in loggers:
            logger.disabled = False


def example_value(node: fx.Node) -> Any:
    """Return the fake tensor that a node produced while tracing."""
    return node.meta.get("val")
