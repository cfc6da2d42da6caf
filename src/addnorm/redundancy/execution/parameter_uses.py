"""Uses of a model's parameters, recorded during one call."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from addnorm.errors import InputError
from addnorm.redundancy.execution.affine import is_affine
from addnorm.redundancy.execution.checks import failed_call
from addnorm.redundancy.execution.copies import plain_copy
from addnorm.redundancy.execution.inputs import Inputs, cloned
from addnorm.redundancy.execution.operation_names import name_of

UseKind = Literal["added", "nonlinearly added", "looked up", "joined", "other"]

_AFFINE = frozenset(
    {
        "view", "_unsafe_view", "reshape", "t", "transpose", "permute", "unsqueeze", "squeeze", "expand", "slice",
        "select", "split", "split_with_sizes", "chunk", "clone", "_to_copy", "alias", "detach", "repeat", "contiguous",
        "flip", "roll", "unbind", "movedim", "narrow", "as_strided", "lift_fresh", "neg", "copy", "cat", "stack",
        "constant_pad_nd", "add", "add_", "sub", "sub_", "rsub",
    }
)  # fmt: skip
"""Operations that are affine in all tensors that they read: other orders and shapes, joins, sums."""
_CONTRACTIONS = frozenset({"mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv", "linear", "convolution"})
"""Operations in which a matrix of numbers is a weight."""
_FILLED = frozenset({"zeros", "ones", "empty", "full"})
"""Operations that make a tensor without reading another one's numbers, also with `new_` before or `_like` after."""
_LOOKUPS = frozenset({"embedding", "index_select", "index", "gather"})
_ADDITIONS = frozenset({"add", "add_", "sub", "sub_", "rsub"})
_BIAS_AT = {
    "addmm": 0, "baddbmm": 0, "addbmm": 0, "addmv": 0, "_addmm_activation": 0, "linear": 2, "convolution": 2,
    "_convolution": 2, "mkldnn_convolution": 2, "mkldnn_linear": 2, "layer_norm": 3, "native_layer_norm": 3,
    "group_norm": 3, "native_group_norm": 2, "batch_norm": 2, "native_batch_norm": 2, "_native_batch_norm_legit": 2,
    "_native_batch_norm_legit_no_training": 2, "_batch_norm_no_update": 2, "_batch_norm_with_update": 2,
    "cudnn_batch_norm": 2,
}  # fmt: skip
"""Position of an operation's bias among its arguments."""
_RECURRENT = frozenset(
    {"mkldnn_rnn_layer", "lstm", "gru", "rnn_tanh", "rnn_relu", "_thnn_fused_lstm_cell", "_cudnn_rnn"}
)
"""Fused recurrent layers, whose vectors are biases."""


@dataclass(frozen=True, kw_only=True)
class ParameterUse:
    """One use of a parameter: an operation that combines it, or what was computed from it without data, with data."""

    kind: UseKind
    """`nonlinearly added`: what was added is not an affine function of the parameter."""
    constant_enough: bool = True
    """If `kind` is `added`: the parameter is constant along the data's first axis and one more, or the data have fewer
    than three axes, or the parameter has one."""


@dataclass(frozen=True)
class _ParameterOrigin:
    """The parameters from which a tensor was computed without data; none for a constant."""

    affine: frozenset[str] = frozenset()
    """Names of those of which it is an affine function, all together."""
    bent: frozenset[str] = frozenset()
    """Names of the others."""

    def __or__(self, other: "_ParameterOrigin") -> "_ParameterOrigin":
        bent = self.bent | other.bent
        return _ParameterOrigin((self.affine | other.affine) - bent, bent)

    def all_bent(self) -> "_ParameterOrigin":
        """The origin of a function of the tensor that is not affine."""
        return _ParameterOrigin(bent=self.affine | self.bent)


class _UseRecorder(TorchDispatchMode):
    """Follows parameters through operations that read no data, and records what is done with the results and data."""

    supports_higher_order_operators = True
    """flex_attention is one operation here; others are refused."""

    @classmethod
    def is_infra_mode(cls) -> bool:
        """True: flex_attention compiles itself, which torch allows under such modes alone."""
        return True

    def __init__(
        self, parameters: dict[str, torch.Tensor], constants: Iterable[torch.Tensor], original: nn.Module
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.original = {each.untyped_storage().data_ptr(): name for name, each in original.named_parameters()}
        self.foreign = ""
        """The first parameter of the original, not of the copy, that the copy reads."""
        self.origins: dict[int, tuple[torch.Tensor, _ParameterOrigin]] = {}
        """By id, every tensor that depends on no data. An id stays unique only while its tensor lives."""
        for each in constants:
            # A constant is known to depend on no data, without parameters. Without this entry it would count as data,
            # and a masked bias as added to data.
            self.origins[id(each)] = (each, _ParameterOrigin())
        for name, parameter in parameters.items():
            self.origins[id(parameter)] = (parameter, _ParameterOrigin(affine=frozenset({name})))
        self.recorded: dict[str, list[ParameterUse]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        op = name_of(func)
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload) and op != "flex_attention":
            raise NotImplementedError(f"{op} calls functions, whose operations cannot be recorded.")
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        for leaf in given:
            if leaf.numel() and leaf.layout == torch.strided and not self.foreign:
                self.foreign = self.original.get(leaf.untyped_storage().data_ptr(), "")
        tracked = [leaf for leaf in given if (origin := self._origin(leaf)) and (origin.affine or origin.bent)]
        # The origin comes first: an operation in place changes the numbers from which it is computed.
        made = self._made(func, op, args, kwargs, given, tracked)
        out = func(*args, **kwargs)
        if made is None:
            for leaf in tracked:
                self._record(leaf, self._use(op, args, out, leaf))
        mutable = isinstance(func, torch._ops.OpOverload) and func._schema.is_mutable
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                if mutable:
                    self._overwrite(leaf, made)
                if made is None:
                    self.origins.pop(id(leaf), None)
                else:
                    self.origins[id(leaf)] = (leaf, made)
        return out

    def _origin(self, leaf: torch.Tensor) -> _ParameterOrigin | None:
        """The parameters from which a tensor was computed; None if it depends on data."""
        known = self.origins.get(id(leaf))
        return None if known is None else known[1]

    def _made(
        self,
        func: Any,
        op: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        given: list[torch.Tensor],
        tracked: list[torch.Tensor],
    ) -> _ParameterOrigin | None:
        """The origin of an operation's outputs; None if they depend on data, or the operation is a use."""
        if op == "lift_fresh" or op.removeprefix("new_").removesuffix("_like") in _FILLED:
            return _ParameterOrigin()  # numbers written in the code; of other tensors only the shape is read
        if torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
            return None
        # Data meet a parameter here. This is a use, unless one number scales the parameter: the sum with data, if there
        # is one, comes later.
        if any(self._origin(leaf) is None for leaf in given):
            others = [leaf for leaf in given if not any(leaf is each for each in tracked)]
            scaled = op == "mul" and len(tracked) == len(others) == 1 and others[0].dim() == 0
            return self._origin(tracked[0]) if scaled else None
        origin = _ParameterOrigin()
        for leaf in given:
            origin = origin | (self._origin(leaf) or _ParameterOrigin())
        if not tracked:
            return origin
        if op == "_local_scalar_dense":
            return None
        # Known by name, because they are most of the calls, and a test by moves costs five of each. A cast to integers
        # is a step function.
        if op in _AFFINE:
            dtype = kwargs.get("dtype")
            whole = isinstance(dtype, torch.dtype) and not (dtype.is_floating_point or dtype.is_complex)
            return origin.all_bent() if whole else origin
        if _is_table(op, args) or any(self._bias_of(op, args, leaf) for leaf in tracked):
            return None
        moving = [leaf for leaf in tracked if (known := self._origin(leaf)) and known.affine]
        if len(moving) == 1 and op in _CONTRACTIONS and sum(size > 1 for size in moving[0].shape) > 1:
            return None  # the weight of a linear map, whose input is constant
        # A number that scales a parameter is that parameter's coefficient.
        # scale * bias with two learned tensors is not affine in both. The single number is given up: it counts as a
        # coefficient, so that the bias can be tracked at the present scale.
        single = [leaf for leaf in moving if leaf.numel() == 1]
        if op in ("mul", "div") and len(moving) == 2 and len(single) == 1:
            known = self._origin(single[0]) or _ParameterOrigin()
            moving = [leaf for leaf in moving if leaf is not single[0]]
            origin = origin | known.all_bent()
        multiplied = op == "mul" and len(moving) == 1 and args[0] is not args[1]
        if not moving or multiplied or is_affine(func, args, kwargs, moving):
            return origin
        return origin.all_bent()

    def _overwrite(self, written: torch.Tensor, made: _ParameterOrigin | None) -> None:
        """Note that numbers were written into a tensor, and so into all others with the same memory."""
        # All views of that memory hold the new numbers, also those that were made before.
        storage = written.untyped_storage().data_ptr()
        for key, (tensor, origin) in list(self.origins.items()):
            if tensor.layout == torch.strided and tensor.untyped_storage().data_ptr() == storage:
                if made is None:
                    del self.origins[key]
                else:
                    self.origins[key] = (tensor, origin | made)

    def _record(self, leaf: torch.Tensor, use: ParameterUse) -> None:
        origin = self._origin(leaf) or _ParameterOrigin()
        # A use of the sum of an affine and a bent parameter is a use of each, in its own kind.
        bent = replace(use, kind="nonlinearly added") if use.kind == "added" else use
        for names, each in ((origin.affine, use), (origin.bent, bent)):
            for name in names:
                self.recorded.setdefault(name, []).append(each)

    @staticmethod
    def _bias_of(op: str, args: tuple[Any, ...], leaf: torch.Tensor) -> bool:
        """True if a tensor is the bias of a linear map, a convolution or a norm, and nothing else of it."""
        position = _BIAS_AT.get(op)
        return position is not None and position < len(args) and args[position] is leaf

    def _use(self, op: str, args: tuple[Any, ...], out: Any, leaf: torch.Tensor) -> ParameterUse:
        if op in _ADDITIONS:
            return ParameterUse(kind="added", constant_enough=_constant_enough(_varying(leaf), out.shape))
        if op in _RECURRENT:
            return ParameterUse(kind="added" if leaf.dim() == 1 else "other")
        if self._bias_of(op, args, leaf):
            others = [each for at, each in enumerate(args) if at != _BIAS_AT[op]]
            return ParameterUse(kind="added" if all(each is not leaf for each in others) else "other")
        if op in _LOOKUPS and args[0] is leaf:
            return ParameterUse(kind="looked up")
        if op == "_local_scalar_dense":
            return ParameterUse(kind="nonlinearly added")  # a Python number, which can be followed no further
        return ParameterUse(kind="joined" if op in ("cat", "stack") else "other")


def _is_table(op: str, args: tuple[Any, ...]) -> bool:
    """True if an operation selects rows of a table: of a tensor that varies along more than one axis."""
    return op in _LOOKUPS and isinstance(args[0], torch.Tensor) and sum(size > 1 for size in args[0].shape) > 1


def _varying(tensor: torch.Tensor) -> list[int]:
    """A tensor's sizes, 1 along the axes along which it was expanded."""
    return [1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]


def _constant_enough(shape: Sequence[int], out: Sequence[int]) -> bool:
    padded = (1,) * (len(out) - len(shape)) + tuple(shape)
    if len(out) < 3 or sum(size > 1 for size in padded) <= 1:
        return True
    return padded[0] == 1 and sum(size == 1 for size in padded) >= 2


def output_axis(module: nn.Module, weight: torch.Tensor, size: int) -> int:
    """Axis of a module's weight to whose rows a bias of that size is added. Some layers store [in, out]: where both sizes are
    equal, only the class tells, which is Transformers' Conv1D."""
    is_transposed = type(module).__name__ == "Conv1D" or len(weight) != size
    return int(weight.dim() == 2 and weight.shape[1] == size and is_transposed)


def parameter_uses(model: nn.Module, inputs: Inputs) -> dict[str, tuple[ParameterUse, ...]]:
    """Record every use of every parameter, by the parameter's first name, in evaluation mode, on a copy.

    Raises:
        InputError: the inputs do not fit the model, its operations cannot be recorded, or a copy reads the original's
            weights.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        call(plain_copy(model).eval(), inputs)  # reports unfit inputs as such
    try:
        try:
            recorder = _recorded(model, inputs, is_frozen=False)
        except InputError as error:
            if not isinstance(error.__cause__, NotImplementedError):
                raise
            # flex_attention refuses parameters that need a gradient on the CPU, where it has no backward pass.
            recorder = _recorded(model, inputs, is_frozen=True)
    except InputError as error:
        raise InputError(
            f"expected a model whose operations can be recorded, got {type(model).__name__} with one that cannot, such as "
            f"torch.cond or torch.func: {error.__cause__} Audit the parts of the model without it."
        ) from error
    if recorder.foreign:
        raise InputError(
            f"expected a copy of {type(model).__name__} to read its own parameters, got one that reads {recorder.foreign} of "
            "the original, through a function or hook that refers to it. Let the function take the module as an argument."
        )
    return {name: tuple(each) for name, each in recorder.recorded.items()}


def _recorded(model: nn.Module, inputs: Inputs, *, is_frozen: bool) -> _UseRecorder:
    """Call a copy of the model and record the uses of its parameters.

    Raises:
        InputError: the model raised.
    """
    spare = plain_copy(model).eval()
    for parameter in spare.parameters():
        # Frozen attention takes a fused path that hides its biases.
        parameter.requires_grad_(parameter.is_floating_point() and not is_frozen)
    recorder = _UseRecorder(dict(spare.named_parameters()), _constants(spare), model)
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(not is_frozen), recorder:
        call(spare, inputs)
    return recorder


def _constants(model: nn.Module) -> Iterator[torch.Tensor]:
    """A model's tensors that are no parameters: buffers and attributes."""
    yield from model.buffers()
    for module in model.modules():
        for field, value in vars(module).items():
            if field not in ("_parameters", "_buffers", "_modules"):
                leaves = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
                yield from (leaf for leaf in leaves if not isinstance(leaf, nn.Parameter))


def call(model: Callable[..., Any], inputs: Inputs) -> Any:
    """Call the model on example inputs.

    Raises:
        InputError: the model raised; its message is quoted.
    """
    clones = cloned(inputs)
    try:
        return model(*clones.args, **clones.kwargs)
    # A model may raise anything on inputs that do not fit it, and the user needs to see it.
    except Exception as error:
        raise failed_call(model, inputs, error) from error
