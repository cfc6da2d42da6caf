"""All measures of one model as plain values: FLOW in the docstring of the package."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from addnorm.insight.depth.matrix import depth_matrices
from addnorm.insight.flow.attention import AttentionTally
from addnorm.insight.flow.recording import Recording, recorded
from addnorm.insight.flow.stream import LayerTally, SiteTally, Squares
from addnorm.model.transformer import Transformer
from addnorm.training.objective import Batch, LossSums, loss_sums
from addnorm.words import Sentence, say

DEPTH_TOKENS = 128
"""Tokens of the sequence on which depth matrices are measured: the scores of all layers exist at once."""
_MEAN_OF_LAYER = (
    "share",
    "update_rms",
    "entropy",
    "entropy_share",
    "one_hot",
    "first_share",
    "similarity",
    "mean_similarity",
    "own_share",
    "query_direction",
    "key_direction",
)


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Held-out text as inputs and targets of the model."""

    batches: Sequence[Batch]
    """Batches for gradients, the stream and read-outs."""
    maps: Sequence[Batch]
    """Batches for attention and scores: fewer, of one sequence each."""


class ParameterGradients:
    """Gradients of a loss with respect to a model's parameters, summed over batches; the model's own `.grad` is not changed."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.sums: dict[int, Tensor] = {}
        """By the id of the parameter."""
        self.count = 0
        """Scored tokens."""

    def add(self, sums: LossSums, others: Sequence[Tensor] = ()) -> Sequence[Tensor | None]:
        """Add a batch.

        Returns:
            The gradients with respect to `others`; None for those on which the loss does not depend.
        """
        # Not `backward`, which would add to the `.grad` of the caller's parameters. Parameters and streams in one call:
        # two calls would need the graph twice.
        both = torch.autograd.grad(sums.nats, [*self.parameters, *others], allow_unused=True)
        for parameter, gradient in zip(self.parameters, both, strict=False):
            if gradient is not None:
                before = self.sums.get(id(parameter))
                self.sums[id(parameter)] = gradient if before is None else before + gradient
        self.count += sums.count
        return both[len(self.parameters) :]

    def norm(self, *modules: nn.Module) -> float:
        """The norm of the gradient of the mean loss per scored token with respect to the parameters of modules."""
        squares = Squares()
        for parameter in (parameter for module in modules for parameter in module.parameters()):
            if id(parameter) in self.sums:
                squares.add(self.sums[id(parameter)])
        return squares.norm / self.count


@contextmanager
def as_in_training(model: nn.Module) -> Iterator[bool]:
    """Let batch norm use the statistics of the batch, as in training, and restore its running statistics afterwards.

    Yields:
        True if the model has batch norms, so that a pass differs from one in evaluation mode.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    kept = [{name: buffer.clone() for name, buffer in norm.named_buffers()} for norm in norms]
    modes = [norm.training for norm in norms]
    for norm in norms:
        norm.train()
    try:
        yield bool(norms)
    finally:
        for norm, buffers, mode in zip(norms, kept, modes, strict=True):
            norm.train(mode)
            for name, buffer in norm.named_buffers():
                buffer.copy_(buffers[name])


def flow(model: Transformer, windows: Windows) -> dict[str, Any]:
    """Measure a model; its weights, buffers and mode are not changed.

    Memory: that of a training step without its optimizer; for attention, linear in the length.

    Example::

        measures = flow(model, Windows(batches=[batch], maps=[batch]))
        [layer["rms"] for layer in measures["layers"]]
    """
    measured = measures(model, partial(recorded, model), windows)
    del measured["missing"]  # empty: our models have every part
    return measured | {"depth": finite(depth_matrices(model, windows.maps[0].inputs[:, :DEPTH_TOKENS]))}


def measures(model: nn.Module, record: Callable[[Batch], Recording], windows: Windows) -> dict[str, Any]:
    """Measure any model in evaluation mode; it is not changed.

    Args:
        model: reads tokens.
        record: records a pass of the model over a batch.
        windows: held-out text.

    Returns:
        FLOW without `depth`, and `missing`, the sentences about parts that were not found. Without logits there is no loss, no
        gradient and no early exit: `loss` is None, and the other keys are absent.
    """
    training, tally = model.training, _Tally(model, ParameterGradients(model))
    model.eval()
    try:
        with torch.enable_grad():
            for batch in windows.batches:
                tally.add(record, batch)
        with torch.no_grad():
            # Apart from the batches for gradients: a graph that is kept and a matrix of all positions would not fit
            # together.
            for batch in windows.maps:
                tally.attention.add(record(batch).attentions)
    finally:
        model.train(training)
    return finite(tally.flow()) | {"missing": list((tally.missing | tally.attention.missing()).values())}


@dataclass
class _Tally:
    """Sums over batches."""

    model: nn.Module
    gradients: ParameterGradients
    attention: AttentionTally = field(default_factory=AttentionTally)
    nats: float = 0.0
    entry: Squares = field(default_factory=Squares)
    layers: dict[int, LayerTally] = field(default_factory=lambda: defaultdict(LayerTally))
    sites: dict[tuple[int, int], SiteTally] = field(default_factory=dict)
    """By layer and order in it."""
    modules: Sequence[nn.Module] = ()
    """Of the layers."""
    embedding: nn.Module | None = None
    missing: dict[str, Sentence] = field(default_factory=dict)

    def add(self, record: Callable[[Batch], Recording], batch: Batch) -> None:
        """Add one pass."""
        recording = record(batch)
        self.modules, self.embedding = [layer.module for layer in recording.layers], recording.embedding
        self.missing |= recording.missing
        with torch.no_grad():
            self.entry.add(recording.entry)
            for number, layer in enumerate(recording.layers):
                self.layers[number].add(layer)
            for site in recording.sites:
                self.sites.setdefault((site.layer, site.order), SiteTally(site.role, site.modules)).add(site)
        if recording.logits is None:
            self.missing["logits"] = say("no_logits")
            return
        self.nats += loss_sums(recording.logits, batch).nats.item()
        with as_in_training(self.model) as differs:
            # The forward pass is recorded again only if batch norms make it another one; otherwise the graph of the
            # first one serves.
            self._add_gradients(record(batch) if differs else recording, batch)
        # After the gradients, for which a pass through the model may not run before: it could overwrite what they need.
        with torch.no_grad():
            self._add_exits(recording, batch)

    def _add_gradients(self, recording: Recording, batch: Batch) -> None:
        sites = [site for site in recording.sites if site.modules is not None]
        loss = loss_sums(cast(Tensor, recording.logits), batch)
        for site, gradient in zip(sites, self.gradients.add(loss, [site.after for site in sites]), strict=True):
            if gradient is not None:
                self.sites[site.layer, site.order].gradient.add(gradient)

    def _add_exits(self, recording: Recording, batch: Batch) -> None:
        read_out = recording.read_out()
        if read_out is None:
            self.missing["read-out"] = say("no_read_out")
            return
        for number, layer in enumerate(recording.layers):
            tally = self.layers[number]
            tally.exit_nats = (tally.exit_nats or 0.0) + loss_sums(read_out(layer.output), batch).nats.item()

    def flow(self) -> dict[str, Any]:
        """The measures so far."""
        places: dict[tuple[int, int | None], dict[str, Any]] = {
            (layer, order): {"site": site, "layer": layer, "role": self.sites[layer, order].role}
            for site, (layer, order) in enumerate(sorted(self.sites))
        }
        sites = [places[place] | self._site(self.sites[place]) for place in sorted(self.sites)]
        attending = {place: self.attention.sites[place] for place in self.attention.measured}
        attended = [
            places.get(site, {"layer": site[0]}) | self.attention.of(place) for place, site in attending.items()
        ]
        return {
            "loss": self.nats / self.gradients.count if self.gradients.count else None,
            **self._gradient(self.model),
            "embedding": {"rms": self.entry.rms} | ({} if self.embedding is None else self._gradient(self.embedding)),
            "layers": [
                self._layer(number, module) | layer_means(number, [*sites, *attended])
                for number, module in enumerate(self.modules)
            ],
            "sites": sites,
            "attention": attended,
        }

    def _site(self, tally: SiteTally) -> dict[str, float]:
        row = tally.measures()
        if tally.modules is not None:
            row |= self._gradient(*tally.modules)
        if tally.gradient.entries:
            row["stream_gradient"] = tally.gradient.norm / self.gradients.count
        return row

    def _layer(self, number: int, module: nn.Module) -> dict[str, Any]:
        layer = self.layers[number]
        row: dict[str, Any] = {"layer": number, **self._gradient(module), "rms": layer.output.rms}
        if layer.exit_nats is not None:
            row["exit_loss"] = layer.exit_nats / self.gradients.count
        if layer.cosines:
            row["cosine"] = sum(layer.cosines) / len(layer.cosines)
        return row

    def _gradient(self, *modules: nn.Module) -> dict[str, float]:
        """The gradient norm of modules' parameters by its key; {} without a loss."""
        return {"gradient": self.gradients.norm(*modules)} if self.gradients.count else {}


def layer_means(layer: int, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over the sites of a layer, of the measures that a layer's row has."""
    means = {}
    for name in _MEAN_OF_LAYER:
        values = [row[name] for row in rows if row["layer"] == layer and name in row]
        if values:
            means[name] = sum(values) / len(values)
    return means


def finite(value: Any) -> Any:
    """Replace every number that is not finite by None, because JSON has no such numbers."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
