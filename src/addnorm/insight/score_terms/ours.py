"""The parts of a layer from a model of this library, from the trace of one forward pass in float64."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Int64
from torch import Tensor
from torch.nn import functional as F

from addnorm.errors import InputError
from addnorm.insight.score_terms.parts import ScoreFactors
from addnorm.model.architecture import Architecture
from addnorm.model.attention import SelfAttention
from addnorm.model.gau import GatedAttentionUnit
from addnorm.model.trace import AttentionTrace, Trace
from addnorm.model.transformer import Transformer
from addnorm.position import Position
from addnorm.residual import Read, separate


def parts_of(model: Transformer, tokens: Int64[Tensor, "sample seq"]) -> Iterator[ScoreFactors]:
    """Iterate over the parts of every attention layer, computed by a copy of the model in float64.

    Raises:
        InputError: the model's position encoding does not rotate queries and keys, or they are normed.
    """
    require_rotation(model.spec.position.kind, model.position)
    require_plain_projections(model.spec)
    # A copy, in float64: the sum of the terms is compared with the model's scores at every pair, and the bound on
    # rounding would hide mistakes in a narrow type.
    model = copy.deepcopy(model).double().eval().requires_grad_(False)
    trace = Trace()
    model(tokens, trace=trace)
    _, seq = tokens.shape
    prepared = model.position.prepare(0, seq, torch.zeros(1, 1, dtype=torch.float64, device=tokens.device))
    for site, branches in zip(trace.sites, model.site_branches(), strict=True):
        if site.attention is not None and (branch := branches.attending) is not None:
            body = cast(SelfAttention | GatedAttentionUnit, branch.body)
            # Where branches share a norm, the first one has it.
            normed = branches.branches[0] if branches.shares_norm else branch
            yield _parts(model, body, normed.normed_read(site.read), site.attention, prepared)


def require_rotation(kind: str, position: Position) -> None:
    """Raises:
    InputError: the position encoding does not rotate queries and keys.
    """
    if type(position).rotate is Position.rotate and type(position).rotate_layer is Position.rotate_layer:
        raise InputError(
            f"the four terms: expected a rotary position, got '{kind}', with which no term of a bias depends on the distance. "
            "Inspect a run with rope, interleaved_rope or xpos."
        )


def require_plain_projections(spec: Architecture) -> None:
    """Raises:
    InputError: a norm or a convolution stands between the biases and the scores.
    """
    if spec.qk_norm is not None:
        raise InputError(
            f"the four terms: expected queries and keys without a norm, got qk_norm {spec.qk_norm.kind!r}, which divides each "
            "by its own size, so that a score is no sum of terms with and without the biases. Inspect a run without qk_norm."
        )
    if spec.convolution is not None and set(spec.convolution.of) != {"value"}:
        raise InputError(
            "the four terms: expected queries and keys of one position each, got convolution.of "
            f"{list(spec.convolution.of)}, with which a bias joins those of neighbours too. Inspect a run without it."
        )


@dataclass(frozen=True, kw_only=True)
class _Projected:
    """Queries and keys before bias and rotation, with the sums of absolute values that bound their rounding."""

    query: Tensor
    key: Tensor
    query_size: Tensor
    key_size: Tensor
    summands: int


def _projected(body: SelfAttention | GatedAttentionUnit, x: Read) -> _Projected:
    if isinstance(body, SelfAttention):
        of = separate(x)
        pairs = (of.query, body.query.weight), (of.key, body.key.weight)
        plain = (body.split(F.linear(read, weight)) for read, weight in pairs)
        sizes = (body.split(F.linear(read.abs(), weight.abs())) for read, weight in pairs)
        summands = of.query.shape[-1]
    else:  # Z is computed as in the forward pass; only its scaling differs
        base = F.silu(body.input(x)).split(body.sizes, dim=-1)[-1].unsqueeze(1)
        scales = body.query_scale, body.key_scale
        plain = (base * scale for scale in scales)
        sizes = ((base * scale).abs() for scale in scales)
        summands = 1
    query, key = plain
    query_size, key_size = sizes
    return _Projected(query=query, key=key, query_size=query_size, key_size=key_size, summands=summands)


def _parts(
    model: Transformer, body: SelfAttention | GatedAttentionUnit, x: Read, attention: AttentionTrace, prepared: Any
) -> ScoreFactors:
    query, key = attention.query, attention.key
    a, b = body.qk_bias.vectors() if body.qk_bias is not None else (None, None)
    heads, kv_heads, head_dim = query.shape[1], key.shape[1], query.shape[-1]
    query_bias = query.new_zeros(heads, head_dim) if a is None else a.view(heads, head_dim)
    key_bias = key.new_zeros(kv_heads, head_dim) if b is None else b.view(kv_heads, head_dim)
    made = _projected(body, x)
    return ScoreFactors(
        layer=body.layer,
        query=made.query,
        key=made.key,
        query_bias=query_bias,
        key_bias=key_bias,
        rotate=lambda q, k: model.position.rotate_layer(body.layer, q, k, prepared),
        attended_query=query,
        attended_key=key,
        scale=own_weight(model, body.layer, heads),
        query_size=made.query_size,
        key_size=made.key_size,
        summands=made.summands,
    )


def own_weight(model: Transformer, layer: int, heads: int) -> Tensor:
    """Return the weight of the layer's own Q Kᵀ in its scores, per head; the four terms leave earlier layers out."""
    weights = model.scores.weights(layer)
    last = weights[..., -1] if isinstance(weights, Tensor) else torch.tensor(float(weights[-1]), dtype=torch.float64)
    return last.double().to(next(model.parameters()).device).expand(heads)
