"""Gradient norms: for the parameters of every site and of the whole model, and for the stream after each site."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.insight.flow.stream import Squares
from addnorm.model.trace import Trace
from addnorm.model.transformer import Transformer
from addnorm.training.objective import Measured, Scored, compare


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Norms of the gradient of the mean loss per scored token."""

    whole: float
    """For all parameters."""
    embedding: float
    """For the token embeddings, which in a tied model are also the matrix of the head."""
    sites: tuple[float, ...]
    """For the parameters of each site, its norms included."""
    layers: tuple[float, ...]
    """For the parameters of each layer."""
    streams: tuple[float | None, ...]
    """For the stream after each site; None if the loss does not depend on it."""


def gradients(model: Transformer, batches: Sequence[Scored]) -> Gradients:
    """Compute the gradient of the mean loss over the batches, a batch at a time, without changing the model's own `.grad`.

    Memory: that of a training step without its optimizer.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    sums: list[Tensor | None] = [None] * len(parameters)
    streams: list[Squares] = []
    trace, count = Trace(), 0
    with _as_in_training(model), torch.enable_grad():
        for batch in batches:
            measured: Measured = compare(model(batch.inputs, trace=trace), batch)
            after = [site.after for site in trace.sites]
            gradients_of_batch = torch.autograd.grad(measured.nats, [*parameters, *after], allow_unused=True)
            for place, gradient in enumerate(gradients_of_batch[: len(parameters)]):
                before = sums[place]
                if gradient is not None:
                    sums[place] = gradient if before is None else before + gradient
            streams = streams or [Squares() for _ in after]
            for squares, gradient in zip(streams, gradients_of_batch[len(parameters) :], strict=True):
                if gradient is not None:
                    squares.add(gradient)
            count += measured.count
    total_of = {id(parameter): total for parameter, total in zip(parameters, sums, strict=True)}

    def norm(*modules: nn.Module) -> float:
        squares = Squares()
        for parameter in (parameter for module in modules for parameter in module.parameters()):
            total = total_of.get(id(parameter))
            if total is not None:
                squares.add(total)
        return squares.norm / count

    return Gradients(
        whole=norm(model),
        embedding=norm(model.embedding),
        sites=tuple(norm(*site.branches) for site in model.site_branches()),
        layers=tuple(norm(layer) for layer in model.layers),
        streams=tuple(squares.norm / count if squares.entries else None for squares in streams),
    )


@contextmanager
def _as_in_training(model: nn.Module) -> Iterator[None]:
    """Let batch norm use the statistics of the batch, as in training, and restore its running statistics afterwards."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    kept = [{name: buffer.clone() for name, buffer in norm.named_buffers()} for norm in norms]
    modes = [norm.training for norm in norms]
    for norm in norms:
        norm.train()
    try:
        yield
    finally:
        for norm, buffers, mode in zip(norms, kept, modes, strict=True):
            norm.train(mode)
            for name, buffer in norm.named_buffers():
                buffer.copy_(buffers[name])
