"""All measures of one model as plain values: FLOW in the docstring of the package."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from addnorm.insight.depth.record import depth_matrices
from addnorm.insight.flow.attention import AttentionTally, rows_of_trace
from addnorm.insight.flow.early_exit import exits
from addnorm.insight.flow.gradients import Gradients, gradients
from addnorm.insight.flow.own_scores import ScoreTally
from addnorm.insight.flow.stream import StreamTally, layer_cosines
from addnorm.model.trace import SiteTrace, Trace
from addnorm.model.transformer import Transformer
from addnorm.training.objective import Measured, Scored

_DEPTH_TOKENS = 128
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

    batches: Sequence[Scored]
    """Batches for gradients, the stream and read-outs."""
    maps: Sequence[Scored]
    """Batches for attention and scores: fewer, of one sequence each."""


def flow(model: Transformer, windows: Windows) -> dict[str, Any]:
    """Measure a model; its weights, buffers and mode are not changed.

    Memory: that of a training step without its optimizer; for attention, linear in the length.

    Example::

        measures = flow(model, Windows(batches=[batch], maps=[batch]))
        [layer["rms"] for layer in measures["layers"]]
    """
    training = model.training
    model.eval()
    try:
        grads = gradients(model, windows.batches)
        stream, losses, trace = StreamTally(), defaultdict[int, list[Measured]](list), Trace()
        attention, scores = AttentionTally(), ScoreTally()
        cosines = list[dict[int, float]]()
        with torch.no_grad():
            for batch in windows.batches:
                model(batch.inputs, trace=trace)
                stream.add(trace)
                cosines.append(layer_cosines(trace))
                for layer, measured in exits(model, trace, batch).items():
                    losses[layer].append(measured)
            for batch in windows.maps:
                model(batch.inputs, trace=trace)
                attention.add(dict(enumerate(map(rows_of_trace, trace.attentions))))
                scores.add(trace.attentions)
        depth = depth_matrices(model, windows.maps[0].inputs[:, :_DEPTH_TOKENS])
    finally:
        model.train(training)
    rows = [
        _place(site) | stream.of_site(place) | _gradients_of(grads, place) for place, site in enumerate(trace.sites)
    ]
    attending = [site for site in trace.sites if site.attention is not None]
    attended = [_place(site) | _attention_of(attention, scores, place) for place, site in enumerate(attending)]
    cosine = {layer: sum(found[layer] for found in cosines) / len(cosines) for layer in cosines[0]}
    by_layer = {layer: _loss(measured) for layer, measured in losses.items()}
    return finite(
        {
            "loss": by_layer[max(by_layer)],
            "gradient": grads.whole,
            "embedding": {"rms": stream.entry.rms, "gradient": grads.embedding},
            "layers": [
                {
                    "layer": layer,
                    "gradient": grads.layers[layer],
                    "rms": [row["rms"] for row in rows if row["layer"] == layer][-1],
                    "exit_loss": loss,
                    **({"cosine": cosine[layer]} if layer in cosine else {}),
                    **layer_means(layer, [*rows, *attended]),
                }
                for layer, loss in by_layer.items()
            ],
            "sites": rows,
            "attention": attended,
            "depth": depth,
        }
    )


def _place(site: SiteTrace) -> dict[str, Any]:
    return {"site": site.site.index, "layer": site.site.layer, "role": site.site.role}


def _gradients_of(grads: Gradients, place: int) -> dict[str, float]:
    stream = grads.streams[place]
    return {"gradient": grads.sites[place]} | ({} if stream is None else {"stream_gradient": stream})


def _attention_of(attention: AttentionTally, scores: ScoreTally, place: int) -> dict[str, Any]:
    shares = scores.shares(place)
    if shares is None:
        return attention.of(place)
    return attention.of(place, {"own_share": shares[:, -1].tolist()}) | {"score_shares": shares.mean(0).tolist()}


def _loss(measured: Sequence[Measured]) -> float:
    nats = sum((part.nats for part in measured), torch.zeros((), dtype=torch.float64))
    total = nats.item() if isinstance(nats, Tensor) else float(nats)
    return total / sum(part.count for part in measured)


def layer_means(layer: int, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over the sites of a layer, of the measures that a layer's row has."""
    found = {}
    for name in _MEAN_OF_LAYER:
        values = [row[name] for row in rows if row["layer"] == layer and name in row]
        if values:
            found[name] = sum(values) / len(values)
    return found


def finite(value: Any) -> Any:
    """Replace every number that is not finite by None, because JSON has no such numbers."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
