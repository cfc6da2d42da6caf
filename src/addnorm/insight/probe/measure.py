"""All measures of a model of others as plain values."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from addnorm.anatomy.recording import Attended, Recording, record
from addnorm.anatomy.structure import LayerRecord, find_layers
from addnorm.errors import InputError
from addnorm.insight.flow.measure import finite, means_of
from addnorm.insight.flow.stream import Squares
from addnorm.insight.probe.attention import attention_measures
from addnorm.insight.probe.read_out import read_out_of
from addnorm.training.objective import Measured, Scored, compare
from addnorm.words import Sentence, say

Logits = Callable[[nn.Module, Tensor], Tensor | None]
"""Applies a model to tokens; None if it has no logits."""


def probe(model: nn.Module, batches: Sequence[Scored], maps: Sequence[Scored], logits_of: Logits) -> dict[str, Any]:
    """Measure a model in evaluation mode; it is not changed.

    Args:
        model: reads tokens.
        batches: batches for the loss, gradients, the stream and the read-out.
        maps: batches for attention.
        logits_of: applies the model.

    Returns:
        FLOW of `addnorm.insight.flow` with the further keys of this package, and `missing`. Without logits there is no loss,
        no gradient and no early exit: `loss` is None, and the other keys are absent.

    Raises:
        InputError: the model has no list of layers that are called one after the other.
    """
    training, tally, missing = model.training, _Tally(model), dict[str, Sentence]()
    model.eval()
    try:
        for batch in batches:
            again = partial(logits_of, model, batch.inputs)
            tally.add(*_pass(model, batch, logits_of), batch, again, missing)
        rows: list[list[dict[str, float]]] = []
        with torch.no_grad():
            for batch in maps:
                _, layers, _ = _pass(model, batch, logits_of)
                first = [layer.attentions[0] if layer.attentions else None for layer in layers]
                rows.append(attention_measures(first))
                _name_missing_attention(first, missing)
    finally:
        model.train(training)
    flow = tally.flow()
    for number, row in enumerate(flow["layers"]):
        row |= means_of([of_pass[number] for of_pass in rows])
    return finite(flow) | {"missing": list(missing.values())}


def _name_missing_attention(attentions: Sequence[Attended | None], missing: dict[str, Sentence]) -> None:
    absent = [str(number) for number, found in enumerate(attentions) if found is None]
    if absent:
        missing["attention"] = say("no_attention", layers=", ".join(absent))
    unnamed = [str(number) for number, found in enumerate(attentions) if found is not None and found.query is None]
    if unnamed:
        missing["directions"] = say("no_directions", layers=", ".join(unnamed))


def _pass(
    model: nn.Module, batch: Scored, logits_of: Logits
) -> tuple[Recording, tuple[LayerRecord, ...], Tensor | None]:
    recording, logits = record(model, lambda: logits_of(model, batch.inputs))
    layers = find_layers(recording)
    if not layers:
        raise InputError(
            f"{type(model).__name__}: expected a list of layers that are called one after the other, got none. Nothing can be "
            "measured layer by layer."
        )
    return recording, layers, logits


@dataclass
class _Tally:
    """Sums over batches."""

    model: nn.Module
    nats: float = 0.0
    count: int = 0
    entry: Squares = field(default_factory=Squares)
    after: dict[int, Squares] = field(default_factory=lambda: defaultdict(Squares))
    sites: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    cosines: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    exits: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    gradients: dict[int, Tensor] = field(default_factory=dict)
    """Sum over batches, by the id of the parameter."""
    layers: list[nn.Module] = field(default_factory=list)

    def add(
        self,
        recording: Recording,
        layers: Sequence[LayerRecord],
        logits: Tensor | None,
        batch: Scored,
        again: Callable[[], Tensor | None],
        missing: dict[str, Sentence],
    ) -> None:
        """Add one pass."""
        self.layers = [layer.call.module for layer in layers]
        if logits is not None:
            measured: Measured = compare(logits, batch)
            self._add_gradients(measured.nats)
            self.nats += measured.nats.item()
            self.count += measured.count
        with torch.no_grad():
            for number, layer in enumerate(layers):
                self._add_stream(number, layer, missing)
            if logits is None:
                missing["logits"] = say("no_logits")
                return
            # The same pass, which has logits.
            read_out = read_out_of(recording, layers, logits, cast(Callable[[], Tensor], again))
            if read_out is None:
                missing["read-out"] = say("no_read_out")
                return
            for number, layer in enumerate(layers):
                if layer.call.output is not None:
                    self.exits[number] += compare(read_out(layer.call.output), batch).nats.item()

    def _add_gradients(self, nats: Tensor) -> None:
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        found = torch.autograd.grad(nats, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, found, strict=True):
            if gradient is not None:
                before = self.gradients.get(id(parameter))
                self.gradients[id(parameter)] = gradient if before is None else before + gradient

    def _add_stream(self, number: int, layer: LayerRecord, missing: dict[str, Sentence]) -> None:
        x, y = layer.call.input, layer.call.output
        if x is None or y is None:
            return
        if number == 0:
            self.entry.add(x)
        self.after[number].add(y)
        if x.shape == y.shape:
            self.cosines[number].append(torch.cosine_similarity(x.double(), y.double(), dim=-1).mean().item())
        if not layer.complete:
            missing["joints"] = say("no_branches", layer=number, path=layer.call.path, count=len(layer.joints))
        for index, joint in enumerate(layer.joints):
            site = self.sites.setdefault(
                (number, index), {"role": joint.role, "added": Squares(), "written": Squares()}
            )
            site["added"].add(joint.update)
            site["written"].add(joint.written)

    def flow(self) -> dict[str, Any]:
        """The measures so far."""
        sites = [
            {
                "site": place,
                "layer": number,
                "role": site["role"],
                "rms": site["written"].rms,
                "update_rms": site["added"].rms,
                "share": site["added"].norm / site["written"].norm if site["written"].norm else math.nan,
            }
            for place, ((number, _), site) in enumerate(sorted(self.sites.items()))
        ]
        embedding = next((module for module in self.model.modules() if isinstance(module, nn.Embedding)), None)
        return {
            "loss": self.nats / self.count if self.count else None,
            **self._gradient(self.model),
            "embedding": {"rms": self.entry.rms} | ({} if embedding is None else self._gradient(embedding)),
            "layers": [self._layer(number, layer, sites) for number, layer in enumerate(self.layers)],
            "sites": sites,
            "attention": [],
        }

    def _layer(self, number: int, layer: nn.Module, sites: Sequence[dict[str, Any]]) -> dict[str, Any]:
        of_layer = [site for site in sites if site["layer"] == number]
        row: dict[str, Any] = {"layer": number, **self._gradient(layer), "rms": self.after[number].rms}
        if number in self.exits:
            row["exit_loss"] = self.exits[number] / self.count
        for name in ("share", "update_rms") if of_layer else ():
            row[name] = sum(site[name] for site in of_layer) / len(of_layer)
        if self.cosines[number]:
            row["cosine"] = sum(self.cosines[number]) / len(self.cosines[number])
        return row

    def _gradient(self, module: nn.Module) -> dict[str, float]:
        """The gradient norm of a module's parameters by its key; {} without a loss."""
        if not self.count:
            return {}
        squares = Squares()
        for parameter in module.parameters():
            if id(parameter) in self.gradients:
                squares.add(self.gradients[id(parameter)])
        return {"gradient": squares.norm / self.count}
