"""Laws about a mechanism's place in the model: what its methods return, where its tensors lie, and that it can be measured."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from addnorm.errors import BrokenLaw
from addnorm.model.spec import ModelSpec
from addnorm.model.trace import Trace
from addnorm.model.transformer import Transformer
from addnorm.residual import Residual, SeparateReads
from addnorm.testing.causes import CONSTANTS

_INSPECTED = (2, 8)
"""Sequences and tokens of a measured pass."""


def require_verbs(model: Transformer) -> None:
    """Check what the residual's six verbs return, and every other module's output, in all later passes of this model.

    A wrong return value would fail elsewhere: a missing `return` as an attribute of None in the next verb, a tensor with two
    rows as "input" and "state".
    """
    residual, width = model.residual, model.spec.width
    stream_is_normed = "stream" not in model.spec.residual.refused_sockets()

    def call(verb: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        if verb in ("view", "close"):
            _require_stream(verb, result, width)
        elif verb == "read":
            if type(result) is not tuple or len(result) != 2:
                raise BrokenLaw(
                    "runs",
                    f"read returns {_kind(result)}, not the pair of the branch's input and the state.",
                    "Return (input, state).",
                )
            for read in result[0] if isinstance(result[0], SeparateReads) else result[:1]:
                _require_stream(verb, read, width)
            _require_state(residual, verb, result[1], width, needs_stream=stream_is_normed)
        else:
            _require_state(residual, verb, result, width, needs_stream=stream_is_normed)
        return result

    for verb in ("open", "read", "write", "map_stream", "view", "close"):
        setattr(residual, verb, partial(call, verb, getattr(residual, verb)))
    for module in model.modules():
        module.register_forward_hook(_require_output)


def _require_output(module: torch.nn.Module, args: Any, output: Any) -> None:
    if output is None:
        raise BrokenLaw("runs", f"{type(module).__name__}.forward returns None.", "Return the result.")


def _require_stream(verb: str, x: Any, width: int) -> None:
    if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[-1] != width:
        got = f"a tensor of shape {list(x.shape)}" if isinstance(x, Tensor) else _kind(x)
        raise BrokenLaw("runs", f"{verb} returns {got}, not a stream [batch, seq, {width}].", "Return the stream.")


def _require_state(residual: Residual, verb: str, state: Any, width: int, *, needs_stream: bool) -> None:
    if isinstance(state, Tensor):
        if type(residual).read is Residual.read:
            _require_stream(verb, state, width)
        return
    if not isinstance(state, tuple) or not hasattr(state, "_fields"):
        raise BrokenLaw(
            "runs",
            f"{verb} returns {_kind(state)}, not a state.",
            "A state is the stream itself (a tensor) or a NamedTuple; with a field `stream` it has read, map_stream, view and "
            "close already.",
        )
    if hasattr(state, "stream"):
        return
    verbs = ("read", "map_stream", "view") if needs_stream else ("read", "view")
    missing = [name for name in verbs if getattr(type(residual), name) is getattr(Residual, name)]
    if missing:
        refusal = "; a residual without one stream refuses norms on it in refused_sockets"
        named = " and ".join(missing)
        raise BrokenLaw(
            "runs",
            f"{verb} returns a {type(state).__name__} without a field `stream`, which {named} need{'s' * (len(missing) == 1)}.",
            f"Name the stream's field `stream`, or define {named}{refusal if 'map_stream' in missing else ''}.",
        )


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def runs_on_its_device(spec: ModelSpec) -> None:
    """Every tensor lies on the model's device: a pass on the meta device, which computes nothing, meets none of the CPU."""
    model = replace(spec, attention="reference").build().to("meta")
    tokens = torch.zeros(2, 9, dtype=torch.int64, device="meta")
    try:
        with torch.no_grad(), _OneDevice():  # type: ignore[no-untyped-call]
            model(tokens)
    except (NotImplementedError, RuntimeError, TypeError) as error:
        # A mechanism that asks for a number (`.item()`, `if`) cannot run without numbers. It runs on every device that has
        # them; that it neither exports nor compiles is another law.
        if "meta" not in str(error) or "expected device meta" in str(error):
            raise


class _OneDevice(TorchDispatchMode):
    """Raises `BrokenLaw` at the first operation that takes tensors of the meta device and of another one.

    The meta device itself looks at element-wise operations only: a product with a matrix of the CPU passes there, and fails on
    a GPU. A tensor of one number may lie on the CPU on every device, and so may an index.
    """

    _ANYWHERE = ("aten::_to_copy", "aten::copy_", "aten::index.Tensor", "aten::index_put", "aten::index_put_")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not str(func.name()).startswith(self._ANYWHERE):
            given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor) and each.dim()]
            others = [each for each in given if each.device.type != "meta"]
            if others and len(others) < len(given):
                raise BrokenLaw(
                    "runs_on_its_device",
                    f"{func.name().removeprefix('aten::')} joins a tensor {list(others[0].shape)} of the CPU to those of the "
                    "model's device.",
                    CONSTANTS,
                )
        return func(*args, **kwargs)


def is_viewed_and_traced(spec: ModelSpec) -> None:
    """Every analysis works on it: the stream is seen at every site, coefficients have layers, reads are sums of contributions.

    `addnorm inspect`, `explain` and `report` ask a model for these after it was trained.
    """
    law = "is_viewed_and_traced"
    # By name: the analyses stand above the laws, and run here themselves, depth matrices included, so that no copy of them
    # can be more lenient.
    measure = importlib.import_module("addnorm.insight.flow.measure")
    batch = importlib.import_module("addnorm.training.objective").Batch
    sequences, length = _INSPECTED
    tokens = torch.randint(spec.vocab, (sequences, length), generator=torch.Generator().manual_seed(0))
    given = batch(inputs=tokens, targets=tokens.roll(-1, 1), mask=None)
    traced = spec.build().double().eval()
    require_verbs(traced)
    with torch.no_grad():
        traced(tokens, trace=Trace())
    for path, mechanism in traced.mechanisms().items():
        _require_coefficients(path, mechanism)
    model = spec.build().double().eval()
    flow = measure.flow(model, measure.Windows(batches=[given], maps=[given]))
    if [site["layer"] for site in flow["sites"]] != [place.layer for place in spec.places]:
        raise BrokenLaw(
            law, f"{len(flow['sites'])} of {len(spec.places)} sites are seen.", "Return the state from write."
        )


def _require_coefficients(path: str, mechanism: torch.nn.Module) -> None:
    coefficients: Callable[[], Any] | None = getattr(mechanism, "coefficients", None)
    if coefficients is None:
        return
    known, answer = dict(mechanism.named_parameters()), coefficients()
    for name, entry in answer.items():
        wrong = (
            f"no parameter {name!r}"
            if name not in known
            else f"{_kind(entry)}"
            if not isinstance(entry, tuple) or len(entry) != 2 or not isinstance(entry[1], Tensor)
            else f"{len(entry[0])} layers for {entry[1].numel()} coefficients"
            if len(entry[0]) != entry[1].numel()
            else ""
        )
        if wrong:
            raise BrokenLaw(
                "is_viewed_and_traced",
                f"{path}.coefficients()[{name!r}]: expected a pair of layers and coefficients of a parameter, got {wrong}.",
                "Return {name: ([layer of each entry], tensor of the coefficients)}, or leave the method out.",
            )


def repeats_itself(spec: ModelSpec) -> None:
    """In evaluation mode, two passes over the same tokens give the same bits."""
    model, tokens = spec.build().eval(), torch.zeros(1, 5, dtype=torch.int64)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        gap = (model(tokens) - model(tokens)).abs().max().item()
    if gap > 0:  # not of NaN, which is another law's
        raise BrokenLaw(
            "repeats_itself",
            f"two passes in evaluation mode differ in a logit by {gap:.1e}.",
            "Draw random numbers while `self.training` alone, as nn.Dropout does, and keep nothing from pass to pass.",
        )
