"""One forward pass: what travels from layer to layer beside the stream.

Layers hand each other their queries and keys (score residuals), and, where the residual replays layers, the attention
patterns they computed. While decoding they hand on rows of raw scores instead, so nothing of size seq x seq exists.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from addnorm.blocks.cache import Cache
from addnorm.kernels.grouped_attention import DistanceBias, attend, attend_squared_relu, weigh
from addnorm.position import Position
from addnorm.scores import Scores, Weights

Normalisation = Literal["softmax", "squared_relu"]
Values = Float[Tensor, "batch kv_heads key value_dim"]
Mixed = Float[Tensor, "batch heads query value_dim"]


@dataclass(frozen=True)
class Pattern:
    """Who attends to whom in one layer, not yet applied to values."""

    queries: tuple[Tensor, ...]
    keys: tuple[Tensor, ...]
    weights: Weights
    causal: bool
    bias: Tensor | DistanceBias | None
    padding: Tensor | None
    dropout: float
    normalisation: Normalisation = "softmax"

    def apply(self, value: Values) -> Mixed:
        """The summed scores, normalised, times the values."""
        function = attend if self.normalisation == "softmax" else attend_squared_relu
        return function(
            self.queries,
            self.keys,
            value,
            self.weights,
            causal=self.causal,
            bias=self.bias,
            padding=self.padding,
            dropout=self.dropout,
        )

    @staticmethod
    def apply_many(
        patterns: Sequence["Pattern"], values: Float[Tensor, "earlier batch kv_heads key value_dim"]
    ) -> Tensor:
        """Each pattern on its own values, as one call where every pattern is one layer's scores with the same weight."""
        first = patterns[0]
        values = values.to(first.queries[0].dtype)  # under autocast vmap leaves a linear with a bias in float32
        foldable = len(first.queries) == 1 and all(
            p.bias is None and not isinstance(p.weights, Tensor) and p.weights == first.weights for p in patterns
        )
        if not foldable:
            return torch.stack([p.apply(v) for p, v in zip(patterns, values, strict=True)])
        # Layers become heads: [batch, earlier * heads, seq, head_dim].
        folded = attend(
            (torch.cat([p.queries[0] for p in patterns], dim=1),),
            (torch.cat([p.keys[0] for p in patterns], dim=1),),
            values.transpose(0, 1).flatten(1, 2),
            first.weights,
            causal=first.causal,
            padding=first.padding,
            dropout=first.dropout,
        )
        return folded.unflatten(1, (len(patterns), -1)).transpose(0, 1)


@dataclass(frozen=True)
class RowPattern:
    """Attention of the newest positions over all positions: what decoding needs."""

    probabilities: Float[Tensor, "*layers batch heads query key"]

    def apply(
        self, value: Float[Tensor, "*layers batch kv_heads key value_dim"]
    ) -> Float[Tensor, "*layers batch heads query value_dim"]:
        """Probabilities times values; grouped-query heads share their values."""
        kv_heads = value.shape[-3]
        grouped = self.probabilities.unflatten(-3, (kv_heads, -1)).flatten(-3, -2)
        return torch.matmul(grouped, value).unflatten(-2, (-1, self.probabilities.shape[-2])).flatten(-4, -3)

    @staticmethod
    def apply_many(patterns: Sequence["RowPattern"], values: Tensor) -> Tensor:
        """Each pattern on its own values, as one product."""
        return RowPattern(torch.stack([p.probabilities for p in patterns])).apply(values)


@dataclass
class Passage:
    """The side inputs of one forward pass and what its layers have handed on so far."""

    scores: Scores
    position: Position
    prepared: Any
    """What the position made once for this pass."""
    causal: bool
    padding: Bool[Tensor, "batch seq"] | None
    dropout: float
    """Rate on the attention probabilities; 0 outside training."""
    cache: Cache | None
    keep_patterns: bool
    normalisation: Normalisation = "softmax"
    """How scores become attention."""
    handed_on: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Queries and keys of the most recent layers, as many as the next layer needs."""
    rows: list[Tensor] = field(default_factory=list)
    """Raw scores of the newest positions, per layer, while decoding."""
    patterns: list[Any] = field(default_factory=list)
    """One pattern per layer so far, where the residual replays layers."""

    def pattern(self, layer: int, query: Tensor, key: Tensor) -> Pattern | RowPattern:
        """The attention pattern of a layer from its own queries and keys and what earlier layers handed on."""
        query, key = self.position.rotate(query, key, self.prepared)
        query, key = self.scores.merge(query, key, self.handed_on[-1] if self.handed_on else None)
        self.handed_on.append((query, key))
        terms = self.handed_on[-self.scores.terms(layer) :]
        weights = self.scores.weights(layer)
        bias = self.position.score_bias(layer, self.prepared)
        all_keys = self.cache.keys[layer].append(key) if self.cache is not None else key
        pattern: Pattern | RowPattern
        if self.cache is not None and self.cache.length > 0:
            self.rows.append(_raw_scores(query, all_keys))
            pattern = self._row_pattern(self.rows[-len(terms) :], weights, bias)
            self.rows = self.rows[-self.scores.terms(layer + 1) :]
        else:
            queries, keys = zip(*terms, strict=True)
            pattern = Pattern(queries, keys, weights, self.causal, bias, self.padding, self.dropout, self.normalisation)
        self.handed_on = self.handed_on[-self.scores.terms(layer + 1) :]
        if self.keep_patterns:
            self.patterns.append(pattern)
        return pattern

    def _row_pattern(self, rows: list[Tensor], weights: Weights, bias: Tensor | DistanceBias | None) -> RowPattern:
        if isinstance(
            weights, Tensor
        ):  # [terms] or [heads, terms]; one axis of heads is left in front of each term's row
            spread: Sequence[Tensor | float] = weights.to(rows[0].dtype).reshape(-1, len(rows), 1, 1).unbind(1)
        else:
            spread = weights
        score = rows[0] * spread[0]
        for row, weight in zip(rows[1:], spread[1:], strict=True):
            score = score + row * weight
        new, seen = score.shape[-2:]
        if bias is not None:
            score = score + (bias.matrix(new, seen) if isinstance(bias, DistanceBias) else bias)
        if self.causal and new > 1:
            future = torch.ones(new, seen, dtype=torch.bool, device=score.device).triu(seen - new + 1)
            score = score.masked_fill(future, float("-inf"))
        # A bias by distance is wider than narrow queries, and so is the score that it joined.
        attention = torch.softmax(score, dim=-1) if self.normalisation == "softmax" else weigh(score)
        return RowPattern(attention.to(rows[0].dtype))


def _raw_scores(query: Tensor, key: Tensor) -> Float[Tensor, "batch heads query key"]:
    kv_heads = key.shape[1]
    grouped = query.unflatten(1, (kv_heads, -1)).flatten(2, 3)
    return (grouped @ key.transpose(-1, -2)).unflatten(2, (-1, query.shape[2])).flatten(1, 2)
