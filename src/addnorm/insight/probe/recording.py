"""A recorded pass of a model of others, from its calls of modules, additions and attentions."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from addnorm.anatomy.recording import PassEvents, record, same
from addnorm.anatomy.structure import LayerRecord, find_layers
from addnorm.errors import InputError
from addnorm.insight.flow.recording import LayerAttention, ReadOut, RecordedLayer, RecordedSite, Recording
from addnorm.insight.probe.attention import rows_of
from addnorm.training.objective import Batch
from addnorm.words import Sentence, say

Logits = Callable[[nn.Module, Tensor], Tensor | None]
"""Applies a model to tokens; None if it has no logits."""


def recorded(model: nn.Module, logits_of: Logits, batch: Batch) -> Recording:
    """Record a pass of any model that reads tokens.

    Raises:
        InputError: the model has no list of layers that are called one after the other.
    """
    again = partial(logits_of, model, batch.inputs)
    events, logits = record(model, again)
    layers = find_layers(events)
    if not layers:
        raise InputError(
            f"{type(model).__name__}: expected a list of layers that are called one after the other, got none. Nothing can be "
            "measured layer by layer."
        )
    widths = {
        tensor.shape[-1] for layer in layers for tensor in (layer.call.input, layer.call.output) if tensor is not None
    }
    if len(widths) > 1:
        got, first, last = ", ".join(map(str, sorted(widths))), layers[0].call.path, layers[-1].call.path
        raise InputError(
            f"{type(model).__name__}: expected layers that keep the width of the stream, got {got} from {first} to {last}. "
            "Nothing can be measured layer by layer."
        )
    streams = [
        RecordedLayer(
            module=layer.call.module, entry=cast(Tensor, layer.call.input), output=cast(Tensor, layer.call.output)
        )
        for layer in layers
    ]
    missing = dict[str, Sentence]()
    for number, layer in enumerate(layers):
        if not layer.complete:
            # The additions to the stream do not explain the layer's output. Something unknown joined it, so its
            # branches are not measured, only what goes in and comes out.
            missing["joints"] = say("no_branches", layer=number, path=layer.call.path, count=len(layer.joints))
    return Recording(
        logits=logits,
        embedding=_embedding(events, batch.inputs),
        entry=streams[0].entry,
        layers=streams,
        sites=[site for number, layer in enumerate(layers) for site in _sites(number, layer)],
        attentions=[_attention(number, layer, *batch.inputs.shape) for number, layer in enumerate(layers)],
        read_out=lambda: read_out_of(events, layers, cast(Tensor, logits), cast(Callable[[], Tensor], again)),
        missing=missing,
    )


def _sites(number: int, layer: LayerRecord) -> Iterator[RecordedSite]:
    # The stream after a joint, and after a norm on it: what the next one reads.
    ends = [*(joint.before for joint in layer.joints[1:]), layer.call.output if layer.complete else None]
    for order, (joint, after) in enumerate(zip(layer.joints, ends, strict=False)):
        yield RecordedSite(
            layer=number,
            order=order,
            role=joint.role,
            added=joint.update,
            written=joint.written,
            after=joint.written if after is None else after,
            modules=None,
        )


def _attention(number: int, layer: LayerRecord, batch: int, seq: int) -> LayerAttention:
    stream = cast(Tensor, layer.call.input)
    # Of some models the stream is [seq, batch, width]; of some it has further positions, such as prompts.
    whole = tuple(stream.shape[:2]) in ((batch, seq), (seq, batch))
    return LayerAttention(
        layer=number,
        order=next((order for order, joint in enumerate(layer.joints) if joint.attention is not None), None),
        rows=lambda: rows_of(layer.attentions, batch, seq) if whole else "other_positions",
    )


def _embedding(events: PassEvents, tokens: Tensor) -> nn.Module | None:
    """The module that embeds tokens: of several embeddings, the one that is called with them."""
    embeddings = [call for call in events.calls if isinstance(call.module, nn.Embedding)]
    of_tokens = [call for call in embeddings if call.input is not None and same(call.input, tokens)]
    return next((call.module for call in [*of_tokens, *embeddings]), None)


# The read-out is the chain of modules that are called one after the other after the last layer, if that makes the model's
# own logits. If other computation stands between them, the model runs once more on layers that return another stream.


@torch.no_grad()
def read_out_of(
    events: PassEvents, layers: Sequence[LayerRecord], logits: Tensor, again: Callable[[], Tensor]
) -> ReadOut | None:
    """Find the read-out of a recorded pass; None if nothing found makes the model's own logits.

    Args:
        again: runs the pass again.
    """
    last = layers[-1].call
    if last.output is None:
        return None
    chain = _chain(events, layers, logits)
    # A candidate is believed only if it makes the model's own logits of the last stream; a chain that misses a factor
    # or a cap would make plausible losses of every layer.
    if chain is not None and _makes(partial(_through, chain), last.output, logits):
        return partial(_through, chain)
    in_place = partial(_in_place, [layer.call.module for layer in layers], _output_of(last.module, again), again)
    return in_place if _makes(in_place, last.output, logits) else None


def _chain(events: PassEvents, layers: Sequence[LayerRecord], logits: Tensor) -> tuple[nn.Module, ...] | None:
    now, time = layers[-1].call.output, layers[-1].call.ended
    chain: list[nn.Module] = []
    while now is not None and not same(now, logits):
        later = [call for call in events.calls if call.began > time]
        call = next((call for call in later if call.input is not None and same(call.input, now)), None)
        if call is None:
            return None
        chain.append(call.module)
        now, time = call.output, call.ended
    return None if now is None else tuple(chain)


def _through(chain: Sequence[nn.Module], x: Tensor) -> Tensor:
    for module in chain:
        x = module(x)
    return x


@contextmanager
def returning(layers: Sequence[nn.Module], output: Any) -> Iterator[None]:
    """Let layers compute nothing, and each return the same output.

    All of them, and not the last alone: what a model keeps of every layer on the way, such as sums of blocks, would otherwise
    be of layers behind the exit.
    """
    forwards = [vars(layer).get("forward") for layer in layers]
    try:
        for layer in layers:
            vars(layer)["forward"] = lambda *_, **__: output
        yield
    finally:
        for layer, forward in zip(layers, forwards, strict=True):
            vars(layer).pop("forward", None)
            if forward is not None:
                vars(layer)["forward"] = forward


def _in_place(layers: Sequence[nn.Module], output: Any, again: Callable[[], Tensor], x: Tensor) -> Tensor:
    with returning(layers, x if isinstance(output, Tensor) else (x, *output[1:])):
        return again()


def _output_of(module: nn.Module, again: Callable[[], Tensor]) -> Any:
    kept: list[Any] = []
    handle = module.register_forward_hook(lambda _, __, output: kept.append(output))
    try:
        again()
    finally:
        handle.remove()
    return kept[-1]


def _makes(read_out: ReadOut, x: Tensor, logits: Tensor) -> bool:
    try:
        made = read_out(x)
    except (TypeError, ValueError, RuntimeError, AttributeError):  # a module that needs more than the stream
        return False
    return made.shape == logits.shape and torch.allclose(made, logits, rtol=1e-3, atol=1e-5)
