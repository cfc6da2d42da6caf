"""Uses of a model's parameters, recorded during one call."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from addnorm.errors import InputError
from addnorm.redundancy.execution.copies import plain_copy
from addnorm.redundancy.execution.inputs import Inputs, cloned

UseKind = Literal["added", "looked up", "joined", "other"]

_MOVES = frozenset(
    {
        "view",
        "_unsafe_view",
        "reshape",
        "t",
        "transpose",
        "permute",
        "unsqueeze",
        "squeeze",
        "expand",
        "slice",
        "select",
        "split",
        "split_with_sizes",
        "chunk",
        "clone",
        "_to_copy",
        "alias",
        "detach",
        "repeat",
        "contiguous",
        "flip",
        "roll",
        "unbind",
        "movedim",
        "narrow",
        "as_strided",
        "lift_fresh",
        "neg",
        "copy",
    }
)
"""Operations that return the parameter's numbers, or their negatives, in another order or shape."""
_MADE = frozenset(
    f"{kind}{end}"
    for kind in ("zeros", "ones", "empty", "full", "new_zeros", "new_ones", "new_empty", "new_full")
    for end in ("", "_like")
)
"""Operations that make a tensor without reading another one's numbers."""
_ADDITIONS = frozenset({"add", "add_", "sub", "sub_", "rsub"})
_BIAS_AT = {
    "addmm": 0,
    "baddbmm": 0,
    "addbmm": 0,
    "addmv": 0,
    "_addmm_activation": 0,
    "linear": 2,
    "convolution": 2,
    "_convolution": 2,
    "mkldnn_convolution": 2,
    "mkldnn_linear": 2,
    "layer_norm": 3,
    "native_layer_norm": 3,
    "group_norm": 3,
    "native_group_norm": 2,
    "batch_norm": 2,
    "native_batch_norm": 2,
    "_native_batch_norm_legit": 2,
    "_native_batch_norm_legit_no_training": 2,
    "_batch_norm_no_update": 2,
    "_batch_norm_with_update": 2,
    "cudnn_batch_norm": 2,
}
"""Position of an operation's bias among its arguments."""
_RECURRENT = frozenset(
    {"mkldnn_rnn_layer", "lstm", "gru", "rnn_tanh", "rnn_relu", "_thnn_fused_lstm_cell", "_cudnn_rnn"}
)
"""Fused recurrent layers, whose vectors are biases."""


@dataclass(frozen=True, kw_only=True)
class Use:
    """One use of a parameter."""

    kind: UseKind
    constant_enough: bool = True
    """If `kind` is `added`: the parameter is constant along the data's first axis and one more, or the data have fewer
    than three axes, or the parameter has one."""


class _UseRecorder(TorchDispatchMode):
    """Follows parameters through views and copies, and records how each is used."""

    supports_higher_order_operators = True
    """flex_attention is one operation here; others are refused."""

    @classmethod
    def is_infra_mode(cls) -> bool:
        """True: flex_attention compiles itself, which torch allows under such modes alone."""
        return True

    def __init__(
        self, parameters: dict[str, torch.Tensor], buffers: Iterable[torch.Tensor], original: nn.Module
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.original = {each.untyped_storage().data_ptr(): name for name, each in original.named_parameters()}
        self.foreign = ""
        """The first parameter of the original, not of the copy, that the copy reads."""
        self.names = {id(parameter): {name} for name, parameter in parameters.items()}
        self.constant = {id(buffer) for buffer in buffers}
        """Tensors that depend neither on data nor on parameters."""
        self.kept: list[torch.Tensor] = []  # an id stays unique only while its tensor lives
        self.recorded: dict[str, list[Use]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        op = name_of(func)
        if not isinstance(func, torch._ops.OpOverload) and op != "flex_attention":
            raise NotImplementedError(f"{op} calls functions, whose operations cannot be recorded.")
        out = func(*args, **(kwargs or {}))
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        tracked = [leaf for leaf in given if id(leaf) in self.names]
        for leaf in given:
            if leaf.numel() and leaf.layout == torch.strided and not self.foreign:
                self.foreign = self.original.get(leaf.untyped_storage().data_ptr(), "")
        if op in _MADE or (not tracked and all(id(leaf) in self.constant for leaf in given)):
            self._note_constants(func, out)
            return out
        self.constant -= {id(leaf) for leaf in tree_leaves(out)}  # data were written into it
        if tracked:
            self._record(op, args, out, tracked)
        return out

    def _note_constants(self, func: Any, out: Any) -> None:
        if torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
            return
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        self.constant |= {id(leaf) for leaf in made}
        self.kept += made

    def _record(self, op: str, args: tuple[Any, ...], out: Any, tracked: list[torch.Tensor]) -> None:
        tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        alone = all(id(leaf) in self.names or id(leaf) in self.constant for leaf in tensors)
        scaled = op in ("mul", "div") and len(tensors) - len(tracked) <= (1 if op == "mul" else 0)
        moved = op in _MOVES or (op in ("cat", "stack", "constant_pad_nd") and alone)
        combined = op in _ADDITIONS and all(
            id(leaf) in self.names for leaf in tensors
        )  # a sum of parameters is not a use; the use of the sum is
        if moved or combined or (scaled and all(leaf.dim() == 0 for leaf in tensors if id(leaf) not in self.names)):
            names = set().union(*(self.names[id(leaf)] for leaf in tracked))
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    self.names[id(leaf)] = names
                    self.kept.append(leaf)
            return
        for leaf in tracked:
            use = self._use(op, args, out, leaf)
            for name in self.names[id(leaf)]:
                self.recorded.setdefault(name, []).append(use)

    def _use(self, op: str, args: tuple[Any, ...], out: Any, leaf: torch.Tensor) -> Use:
        if op in _ADDITIONS:
            return Use(kind="added", constant_enough=_constant_enough(leaf.shape, out.shape))
        if op in _RECURRENT:
            return Use(kind="added" if leaf.dim() == 1 else "other")
        position = _BIAS_AT.get(op)
        if position is not None and position < len(args) and args[position] is leaf:
            others = [each for at, each in enumerate(args) if at != position]
            return Use(kind="added" if all(each is not leaf for each in others) else "other")
        if op in ("embedding", "index_select", "index", "gather") and args[0] is leaf:
            return Use(kind="looked up")
        return Use(kind="joined" if op in ("cat", "stack") else "other")


def _constant_enough(shape: Sequence[int], out: Sequence[int]) -> bool:
    padded = (1,) * (len(out) - len(shape)) + tuple(shape)
    if len(out) < 3 or sum(size > 1 for size in padded) <= 1:
        return True
    return padded[0] == 1 and sum(size == 1 for size in padded) >= 2


def name_of(func: Any) -> str:
    """Name of an operation without its overload, or of one that takes functions."""
    return str(func.overloadpacket.__name__ if isinstance(func, torch._ops.OpOverload) else func.name())


def parameter_uses(model: nn.Module, inputs: Inputs) -> dict[str, tuple[Use, ...]]:
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
    recorder = _UseRecorder(dict(spare.named_parameters()), spare.buffers(), model)
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(not is_frozen), recorder:
        call(spare, inputs)
    return recorder


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
        shapes = [
            list(leaf.shape) for leaf in tree_leaves((inputs.args, inputs.kwargs)) if isinstance(leaf, torch.Tensor)
        ]
        raise InputError(
            f"expected example inputs that fit the model, got tensors of shapes {shapes}: it raised {type(error).__name__}: "
            f"{error}"
        ) from error
