"""Early exits: what a model says of every token if it ends after a layer."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from addnorm.anatomy.recording import tensors
from addnorm.errors import InputError
from addnorm.insight.depth.recorded import layer_paths
from addnorm.insight.probe.recording import returning
from addnorm.model.trace import Trace
from addnorm.model.transformer import Transformer
from addnorm.study.foreign import logits_of

__all__ = ["ModelExit", "early_exits"]


@dataclass(frozen=True, kw_only=True)
class ModelExit:
    """The model that ends after some of its layers: its final norm and head read the stream there."""

    layers: int
    """Number of layers that have run, each as often as it is called; 0 for the embeddings alone."""
    divergence: float
    """Kullback-Leibler divergence of its predictions from those of the whole model, mean over positions, in nats."""
    agreement: float
    """Share of positions whose likeliest token is that of the whole model."""
    loss: float | None
    """Mean loss in nats per token; None without targets."""


def early_exits(
    model: nn.Module, tokens: Int64[Tensor, "batch seq"], targets: Int64[Tensor, "batch seq"] | None = None
) -> Sequence[ModelExit]:
    """Measure a model at every early exit; it is not changed.

    Of several streams an exit reads what the model's own close makes of them. `addnorm inspect` has the loss of every exit of a
    run or a checkpoint folder. Layers run once; of a model of others, what stands around them runs once more for every exit.

    Args:
        model: a model of this library, a decoder or encoder of Transformers, or a module of your own that maps tokens to
            logits, with a list of layers.
        tokens: what it reads.
        targets: tokens that it is to predict, at every position; None for no loss.

    Returns:
        One entry for the embeddings, and one after every layer; the last is the whole model. The first is absent where layers
        return more than a stream, which embeddings alone do not say.

    Raises:
        InputError: the model has no list of layers or no logits, or other things than its last layer's output make them;
            targets of another shape.

    Example:
        >>> import torch, addnorm
        >>> model = addnorm.preset("llama", vocab=64, width=32, depth=2, heads=4, hidden=64, max_seq=16).build(seed=0)
        >>> [each.layers for each in addnorm.early_exits(model, torch.tensor([[1, 2, 3]]))]
        [0, 1, 2]
    """
    if targets is not None and targets.shape != tokens.shape:
        raise InputError(f"targets: expected the shape of tokens, {list(tokens.shape)}, got {list(targets.shape)}.")
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            # The whole model comes first, and no more than two sets of predictions are in memory: of a large vocabulary, all
            # exits together would be gigabytes.
            predicted = _of_ours(model, tokens) if isinstance(model, Transformer) else _of_others(model, tokens)
            layers, whole = next(predicted)
            exits = [_exit(layers, whole, whole, targets)]
            exits += (_exit(layers, made, whole, targets) for layers, made in predicted)
    finally:
        model.train(training)
    return exits[::-1]


def _of_ours(model: Transformer, tokens: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The number of layers that have run, from the last, and logarithms of the predicted probabilities in float64."""
    trace = Trace()
    model(tokens, trace=trace)
    assert trace.entry is not None  # filled by every traced pass
    if model.read_out(trace.entry).shape[-1] != model.spec.vocab:
        raise InputError(f"{type(model).__name__}: expected logits, got embeddings of tokens, which predict none.")
    ends = {site.site.layer + 1: site.after for site in trace.sites}
    for layers, stream in reversed(({0: trace.entry} | ends).items()):
        yield layers, _predictions(model.read_out(stream))


def _of_others(model: nn.Module, tokens: Tensor) -> Iterator[tuple[int, Tensor]]:
    layers = [model.get_submodule(path) for path in layer_paths(model, tokens)]
    entries, outputs = list[Any](), list[Any]()
    with ExitStack() as stack:
        for layer in layers:
            begin = layer.register_forward_pre_hook(lambda _, *given: entries.append(given), with_kwargs=True)
            end = layer.register_forward_hook(lambda _, __, output: outputs.append(output))
            stack.callback(begin.remove)
            stack.callback(end.remove)
        whole = logits_of(model, tokens)
    entry, calls = _streams(entries[0])[0], len(outputs)
    if [each.shape for each in _streams(outputs[0])] == [entry.shape]:
        outputs.insert(0, tree_map(lambda value: entry if isinstance(value, Tensor) else value, outputs[0]))
    for number, output in zip(range(calls, -1, -1), reversed(outputs), strict=False):
        with returning(layers, output):  # the whole of it: some layers return more than the stream
            logits = logits_of(model, tokens)
        if number == calls and not torch.allclose(logits, whole, rtol=1e-3, atol=1e-5):
            raise InputError(
                f"{type(model).__name__}: expected logits that its last layer's output makes, got others: something else "
                "reaches them. `addnorm.inspect` measures a model layer by layer without exits."
            )
        yield number, _predictions(logits)


def _streams(value: Any) -> list[Tensor]:
    return [each for each in tensors(value) if each.is_floating_point()]


def _predictions(logits: Tensor) -> Tensor:
    return logits.double().log_softmax(-1)


def _exit(layers: int, made: Tensor, whole: Tensor, targets: Tensor | None) -> ModelExit:
    loss = None if targets is None else -float(made.gather(-1, targets[..., None]).mean())
    return ModelExit(
        layers=layers,
        divergence=float((whole.exp() * (whole - made)).sum(-1).mean()),
        agreement=float((made.argmax(-1) == whole.argmax(-1)).double().mean()),
        loss=loss,
    )
