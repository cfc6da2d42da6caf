"""A layer's parts from a model of ours, taken from the trace of one forward pass in float64."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Int64
from torch import Tensor
from torch.nn import functional as F

from addnorm.errors import InputError
from addnorm.insight.score_terms.parts import Parts
from addnorm.model.attention import Attention
from addnorm.model.gau import GatedAttentionUnit
from addnorm.model.trace import AttentionTrace, Trace
from addnorm.model.transformer import Transformer
from addnorm.position import Position


def parts_of(model: Transformer, tokens: Int64[Tensor, "sample seq"]) -> Iterator[Parts]:
    """Every attention layer's parts. The model is copied to float64, and stays as it is.

    Raises:
        InputError: the model's position does not rotate, so that its scores have no such terms.
    """
    require_rotation(model.spec.position.kind, model.position)
    model = copy.deepcopy(model).double().eval().requires_grad_(False)
    trace = Trace()
    model(tokens, trace=trace)
    _, seq = tokens.shape
    prepared = model.position.prepare(0, seq, torch.zeros(1, 1, dtype=torch.float64, device=tokens.device))
    for site, branch in zip(trace.sites, model.branches(), strict=True):
        if site.attention is not None:
            body = cast(Attention | GatedAttentionUnit, branch.body)
            yield _parts(model, body, branch.input_norm(site.read), site.attention, prepared)


def require_rotation(kind: str, position: Position) -> None:
    """Raises:
    InputError: the position writes nothing into queries and keys.
    """
    if type(position).rotate is Position.rotate:
        raise InputError(
            f"four terms are those of rotary position: this model has position '{kind}', which rotates nothing, so that no "
            "term of a bias depends on the distance. Inspect a run with rope or xpos."
        )


@dataclass(frozen=True, kw_only=True)
class _Projected:
    """Entries before bias and rotation, how they came about, and what their rounding is a share of."""

    query: Tensor
    key: Tensor
    query_size: Tensor
    key_size: Tensor
    summands: int


def _projected(body: Attention | GatedAttentionUnit, x: Tensor) -> _Projected:
    if isinstance(body, Attention):
        weights = body.query.weight, body.key.weight
        plain = (body.split(F.linear(x, weight)) for weight in weights)
        sizes = (body.split(F.linear(x.abs(), weight.abs())) for weight in weights)
        summands = x.shape[-1]
    else:  # Z is computed as in the forward pass; only its scaling is done in two ways
        base = F.silu(body.input(x)).split(body.sizes, dim=-1)[-1].unsqueeze(1)
        scales = body.query_scale, body.key_scale
        plain = (base * scale for scale in scales)
        sizes = ((base * scale).abs() for scale in scales)
        summands = 1
    query, key = plain
    query_size, key_size = sizes
    return _Projected(query=query, key=key, query_size=query_size, key_size=key_size, summands=summands)


def _parts(
    model: Transformer, body: Attention | GatedAttentionUnit, x: Tensor, attention: AttentionTrace, prepared: Any
) -> Parts:
    query, key = attention.query, attention.key
    a, b = body.qk_bias.vectors() if body.qk_bias is not None else (None, None)
    heads, kv_heads, head_dim = query.shape[1], key.shape[1], query.shape[-1]
    query_bias = query.new_zeros(heads, head_dim) if a is None else a.view(heads, head_dim)
    key_bias = key.new_zeros(kv_heads, head_dim) if b is None else b.view(kv_heads, head_dim)
    made = _projected(body, x)
    return Parts(
        layer=body.layer,
        query=made.query,
        key=made.key,
        query_bias=query_bias,
        key_bias=key_bias,
        rotate=lambda q, k: model.position.rotate(q, k, prepared),
        attended_query=query,
        attended_key=key,
        scale=own_weight(model, body.layer, heads),
        query_size=made.query_size + query_bias.abs()[:, None],
        key_size=made.key_size + key_bias.abs()[:, None],
        summands=made.summands,
    )


def own_weight(model: Transformer, layer: int, heads: int) -> Tensor:
    """Weight of the layer's own Q Kᵀ in its scores, per head; earlier layers' shares are not part of the four terms."""
    weights = model.scores.weights(layer)
    last = weights[..., -1] if isinstance(weights, Tensor) else torch.tensor(float(weights[-1]), dtype=torch.float64)
    return last.double().to(next(model.parameters()).device).expand(heads)
