"""All measures of a model of others as plain values."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from addnorm.anatomy.recording import Recording, record, same
from addnorm.anatomy.structure import LayerRecord, find_layers
from addnorm.errors import InputError
from addnorm.insight.flow.attention import AttentionRows, AttentionTally
from addnorm.insight.flow.gradients import ParameterGradients, as_in_training
from addnorm.insight.flow.measure import finite, layer_means
from addnorm.insight.flow.stream import Squares, added_share, mean_cosine
from addnorm.insight.probe.attention import Reason, rows_of
from addnorm.insight.probe.read_out import read_out_of
from addnorm.training.objective import Scored, compare
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
    training, tally, missing = model.training, _Tally(model, ParameterGradients(model)), dict[str, Sentence]()
    attention = _Attention()
    model.eval()
    try:
        for batch in batches:
            again = partial(logits_of, model, batch.inputs)
            tally.add(*_pass(model, batch, logits_of), batch, again, missing)
        with torch.no_grad():
            for batch in maps:
                _, layers, _ = _pass(model, batch, logits_of)
                attention.add(layers, *batch.inputs.shape)
    finally:
        model.train(training)
    missing |= attention.missing()
    return finite(tally.flow(attention)) | {"missing": list(missing.values())}


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


class _Attention:
    """The attention of every layer, over passes."""

    def __init__(self) -> None:
        self.tally = AttentionTally()
        self.joints: dict[int, int] = {}
        """By layer: the joint of the branch that attends, if there is one."""
        self.reasons: dict[int, Reason] = {}
        """By layer, of those without weights on positions in some pass."""

    def add(self, layers: Sequence[LayerRecord], batch: int, seq: int) -> None:
        """Add one pass over so many sequences and positions."""
        rows: dict[int, AttentionRows] = {}
        for number, layer in enumerate(layers):
            stream = cast(Tensor, layer.call.input)
            # Of some models the stream is [seq, batch, width]; of some it has further positions, such as prompts.
            whole = tuple(stream.shape[:2]) in ((batch, seq), (seq, batch))
            of_layer = rows_of(layer.attentions, batch, seq) if whole else "other_positions"
            if isinstance(of_layer, str):
                self.reasons.setdefault(number, of_layer)
            else:
                rows[number] = of_layer
            attending = [place for place, joint in enumerate(layer.joints) if joint.attention is not None]
            if attending:
                self.joints[number] = attending[0]
        self.tally.add(rows)

    def measures(self, sites: Mapping[tuple[int, int], Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Measures of each attention that has any, with its place.

        Args:
            sites: what is known of every joint of every layer.
        """
        return [
            _place_of((layer, self.joints.get(layer, -1)), sites) | self.tally.of(layer)
            for layer in sorted(self.tally.measures)
            if layer not in self.reasons
        ]

    def missing(self) -> dict[str, Sentence]:
        """The layers without measures, by reason."""
        by_reason: dict[str, list[int]] = defaultdict(list)
        for layer, reason in sorted(self.reasons.items()):
            by_reason[reason].append(layer)
        by_reason["no_directions"] = [
            layer
            for layer in sorted(self.tally.measures)
            if layer not in self.reasons and not self.tally.directions[layer]
        ]
        return {
            reason: say(reason, layers=", ".join(map(str, layers))) for reason, layers in by_reason.items() if layers
        }


def _place_of(place: tuple[int, int], sites: Mapping[tuple[int, int], Mapping[str, Any]]) -> dict[str, Any]:
    if place not in sites:
        return {"layer": place[0]}
    return {"site": sorted(sites).index(place), "layer": place[0], "role": sites[place]["role"]}


@dataclass
class _Tally:
    """Sums over batches."""

    model: nn.Module
    gradients: ParameterGradients
    nats: float = 0.0
    entry: Squares = field(default_factory=Squares)
    after: dict[int, Squares] = field(default_factory=lambda: defaultdict(Squares))
    sites: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    cosines: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    exits: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    layers: list[nn.Module] = field(default_factory=list)
    embedding: nn.Module | None = None

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
        self.embedding = _embedding(recording, batch.inputs)
        if logits is not None:
            self.nats += compare(logits, batch).nats.item()
            with as_in_training(self.model) as differs:
                # The same pass, which has logits.
                self.gradients.add(compare(cast(Tensor, again()) if differs else logits, batch))
        with torch.no_grad():
            for number, layer in enumerate(layers):
                self._add_stream(number, layer, missing)
            if logits is None:
                missing["logits"] = say("no_logits")
                return
            read_out = read_out_of(recording, layers, logits, cast(Callable[[], Tensor], again))
            if read_out is None:
                missing["read-out"] = say("no_read_out")
                return
            for number, layer in enumerate(layers):
                if layer.call.output is not None:
                    self.exits[number] += compare(read_out(layer.call.output), batch).nats.item()

    def _add_stream(self, number: int, layer: LayerRecord, missing: dict[str, Sentence]) -> None:
        x, y = layer.call.input, layer.call.output
        if x is None or y is None:
            return
        if number == 0:
            self.entry.add(x)
        self.after[number].add(y)
        if x.shape == y.shape:
            self.cosines[number].append(mean_cosine(x, y))
        if not layer.complete:
            missing["joints"] = say("no_branches", layer=number, path=layer.call.path, count=len(layer.joints))
        # The stream after a joint, and after a norm on it: what the next one reads.
        ends = [*(joint.before for joint in layer.joints[1:]), y if layer.complete else None]
        for index, (joint, after) in enumerate(zip(layer.joints, ends, strict=False)):
            site = self.sites.setdefault(
                (number, index),
                {"role": joint.role, "added": Squares(), "written": Squares(), "after": Squares()},
            )
            site["added"].add(joint.update)
            site["written"].add(joint.written)
            site["after"].add(joint.written if after is None else after)

    def flow(self, attention: _Attention) -> dict[str, Any]:
        """The measures so far."""
        sites = [
            {
                "site": place,
                "layer": number,
                "role": site["role"],
                "rms": site["after"].rms,
                "update_rms": site["added"].rms,
                "share": added_share(site["added"], site["written"]),
            }
            for place, ((number, _), site) in enumerate(sorted(self.sites.items()))
        ]
        attended = attention.measures(self.sites)
        return {
            "loss": self.nats / self.gradients.count if self.gradients.count else None,
            **self._gradient(self.model),
            "embedding": {"rms": self.entry.rms} | ({} if self.embedding is None else self._gradient(self.embedding)),
            "layers": [
                self._layer(number, layer) | layer_means(number, [*sites, *attended])
                for number, layer in enumerate(self.layers)
            ],
            "sites": sites,
            "attention": attended,
        }

    def _layer(self, number: int, layer: nn.Module) -> dict[str, Any]:
        row: dict[str, Any] = {"layer": number, **self._gradient(layer), "rms": self.after[number].rms}
        if number in self.exits:
            row["exit_loss"] = self.exits[number] / self.gradients.count
        if self.cosines[number]:
            row["cosine"] = sum(self.cosines[number]) / len(self.cosines[number])
        return row

    def _gradient(self, module: nn.Module) -> dict[str, float]:
        """The gradient norm of a module's parameters by its key; {} without a loss."""
        return {"gradient": self.gradients.norm(module)} if self.gradients.count else {}


def _embedding(recording: Recording, tokens: Tensor) -> nn.Module | None:
    """The module that embeds tokens: of several embeddings, the one that is called with them."""
    embeddings = [call for call in recording.calls if isinstance(call.module, nn.Embedding)]
    of_tokens = [call for call in embeddings if call.input is not None and same(call.input, tokens)]
    return next((call.module for call in [*of_tokens, *embeddings]), None)
