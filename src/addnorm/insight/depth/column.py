"""The reads of columns: what every layer attends to, of its own sequence and of its own position at earlier layers.

A layer's weights are probabilities: the sum over the sequence, and one number per earlier layer. A row of them adds up to one,
less what a sink takes.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from addnorm.insight.depth.part import Part, attending_layers
from addnorm.kernels.grouped_attention.column import column_scores, without_column
from addnorm.kernels.grouped_attention.normalisation import attention_of
from addnorm.kernels.grouped_attention.problem import AttentionProblem
from addnorm.kernels.grouped_attention.reference import masked_scores
from addnorm.model.trace import Trace
from addnorm.model.transformer import Transformer

sources_of = attending_layers


def parts(model: Transformer, tokens: Tensor) -> Iterator[Part]:
    """The attended values of every layer, in order of depth.

    Memory: of one layer, batch × heads × seq² numbers, and layers × batch × heads × seq × width of a head.
    """
    trace = Trace()
    model(tokens, trace=trace)
    count = len(trace.attentions)
    for layer, attention in enumerate(trace.attentions):
        p = _in_float64(attention.problem)
        scores = masked_scores(without_column(p))
        earlier = () if model.column is None else model.column.sources(layer)
        if p.column_keys:
            scores = torch.cat([scores, column_scores(p)], dim=-1)
        probabilities = attention_of(p, scores)
        of_sequence, of_column = probabilities[..., : p.key], probabilities[..., p.key :]
        own = of_sequence @ p.value.repeat_interleave(p.group, dim=1)
        # The own layer's weight is the mass of its whole sequence, so its source is the mean of its values under that
        # attention. Divided by the mass, the contribution has the form weight times source, like the others.
        mass = of_sequence.sum(dim=-1, keepdim=True)
        contributions, sources = (own.new_zeros(count, *own.shape) for _ in range(2))
        contributions[layer], sources[layer] = own, own / mass.clamp_min(torch.finfo(mass.dtype).tiny)
        for at, source in enumerate(earlier):
            sources[source] = p.column_values[at].repeat_interleave(p.group, dim=1)
            contributions[source] = of_column[..., at, None] * sources[source]
        yield Part(name=str(layer), read=contributions.sum(dim=0), contributions=contributions, sources=sources)


def _in_float64(problem: AttentionProblem) -> AttentionProblem:
    """The same problem with all numbers in float64."""

    def wide(given: Any) -> Any:
        if isinstance(given, tuple):
            return tuple(map(wide, given))
        return given.double() if isinstance(given, Tensor) and given.is_floating_point() else given

    return replace(problem, **{each.name: wide(getattr(problem, each.name)) for each in fields(problem)})
