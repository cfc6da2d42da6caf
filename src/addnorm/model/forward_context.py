"""One forward pass: what travels from layer to layer beside the stream.

Layers hand each other their queries and keys (score residuals), and, where the residual replays layers, the attention
patterns they computed. While decoding they hand on rows of raw scores instead, so nothing of size seq x seq exists. Where
all layers' scores share one weight the rows are one running sum, and short sequences may carry that sum as a matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention import DistanceBias, Normalisation, attend, weigh
from addnorm.kernels.grouped_attention.running import dropped, running_scores, weighted_scores
from addnorm.model.cache import Cache
from addnorm.position import Position
from addnorm.scores import Scores, Weights

Implementation = Literal["auto", "carry", "reference", "sdpa", "streaming", "triton"]
CARRY_LENGTH = 768
"""Longest sequence whose running sum of scores impl="auto" carries from layer to layer: with eight layers it takes 0.7 of
the time of streaming there and 1.1 at 1024 (docs/benchmarks.md)."""
Values = Float[Tensor, "batch kv_heads key value_dim"]
Mixed = Float[Tensor, "batch heads query value_dim"]


@dataclass(frozen=True)
class Pattern:
    """Who attends to whom in one layer, not yet applied to values."""

    queries: tuple[Tensor, ...]
    keys: tuple[Tensor, ...]
    weights: Weights
    causal: bool
    window: int | None
    bias: Tensor | DistanceBias | None
    padding: Tensor | None
    dropout: float
    normalisation: Normalisation = "softmax"
    impl: str = "auto"

    def apply(self, value: Values) -> Mixed:
        """The summed scores, normalised, times the values."""
        return attend(
            self.queries,
            self.keys,
            value,
            self.weights,
            causal=self.causal,
            sliding_window=self.window,
            bias=self.bias,
            padding=self.padding,
            dropout=self.dropout,
            normalisation=self.normalisation,
            impl=self.impl,
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
            sliding_window=first.window,
            padding=first.padding,
            dropout=first.dropout,
            normalisation=first.normalisation,
            impl=first.impl,
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
class ForwardContext:
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
    impl: Implementation = "auto"
    """How attention is computed: an implementation of `attend`, or "carry"."""
    handed_on: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Queries and keys of the most recent layers, as many as the next layer needs."""
    rows: list[Tensor] = field(default_factory=list)
    """Raw scores of the newest positions, per layer, while decoding."""
    total: Tensor | None = None
    """The running sum of scores of the newest positions, where layers share one weight."""
    scale: float = 1.0
    """What every layer's scores were multiplied by in that sum."""
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
        decoding = self.cache is not None and self.cache.length > 0
        pattern: Pattern | RowPattern
        if (shared := self.scores.shared_weight(layer)) is not None and (decoding or self._carries(query, all_keys)):
            pattern = self._running_pattern(query, all_keys, shared, bias)
        elif decoding:
            self.rows.append(_raw_scores(query, all_keys))
            pattern = self._row_pattern(self.rows[-len(terms) :], weights, bias)
            self.rows = self.rows[-self.scores.terms(layer + 1) :]
        else:
            queries, keys = zip(*terms, strict=True)
            pattern = Pattern(
                queries,
                keys,
                weights,
                self.causal,
                self.position.window(self.prepared),
                bias,
                self.padding,
                self.dropout,
                self.normalisation,
                "auto" if self.impl == "carry" else self.impl,
            )
        self.handed_on = self.handed_on[-self.scores.terms(layer + 1) :]
        if self.keep_patterns:
            self.patterns.append(pattern)
        return pattern

    def _carries(self, query: Tensor, keys: Tensor) -> bool:
        """Whether the scores of whole sequences are carried as a matrix."""
        if self.impl == "carry":
            if self.padding is not None:
                raise InputError("attention: carry takes no padding. Use 'auto' or 'streaming'.")
            return True
        narrow = query.dtype not in (torch.float32, torch.float64)
        return (
            self.impl == "auto"
            and self.padding is None
            and not self.keep_patterns
            and not narrow
            and query.device.type in ("cpu", "meta")
            and carries(self.scores, keys.shape[2])
        )

    def _running_pattern(
        self, query: Tensor, keys: Tensor, weight: float | Tensor, bias: Tensor | DistanceBias | None
    ) -> RowPattern:
        if self.total is None:
            self.scale = weight if isinstance(weight, float) else 1.0
        self.total = running_scores(query, keys, self.total, scale=self.scale, causal=self.causal)
        if isinstance(bias, DistanceBias):
            bias = bias.matrix(*self.total.shape[-2:])
        scores = weighted_scores(self.total, weight / self.scale, bias)
        return RowPattern(self._attention(scores, query))

    def _attention(self, scores: Tensor, query: Tensor) -> Tensor:
        if (old := self._outside_the_window(scores)) is not None:
            scores = scores.masked_fill(old, float("-inf"))
        # A bias by distance is wider than narrow queries, and so is the score that it joined.
        attention = torch.softmax(scores, dim=-1) if self.normalisation == "softmax" else weigh(scores)
        return dropped(attention.to(query.dtype), self.dropout)

    def _row_pattern(self, rows: list[Tensor], weights: Weights, bias: Tensor | DistanceBias | None) -> RowPattern:
        spread = torch.as_tensor(weights, dtype=rows[0].dtype, device=rows[0].device)  # [terms] or [heads, terms]
        score = (torch.stack(rows) * spread.movedim(-1, 0).reshape(len(rows), 1, -1, 1, 1)).sum(0)
        new, seen = score.shape[-2:]
        if bias is not None:
            score = score + (bias.matrix(new, seen) if isinstance(bias, DistanceBias) else bias)
        if self.causal and new > 1:
            future = torch.ones(new, seen, dtype=torch.bool, device=score.device).triu(seen - new + 1)
            score = score.masked_fill(future, float("-inf"))
        return RowPattern(self._attention(score, rows[0]))

    def _outside_the_window(self, scores: Tensor) -> Tensor | None:
        """True at keys that are too old for the newest rows; None where there is no window."""
        window = self.position.window(self.prepared)
        if window is None:
            return None
        new, seen = scores.shape[-2:]
        return torch.ones(new, seen, dtype=torch.bool, device=scores.device).tril(seen - new - window)


def carries(scores: Scores, length: int) -> bool:
    """Whether "auto" carries the running sum of scores of sequences this long: on a CPU, in float32 or float64, without
    padding and without replayed layers. Elsewhere it was not measured."""
    return length <= CARRY_LENGTH and scores.terms(1) > 1 and scores.shared_weight(0) is not None


def _raw_scores(query: Tensor, key: Tensor) -> Float[Tensor, "batch heads query key"]:
    kv_heads = key.shape[1]
    grouped = query.unflatten(1, (kv_heads, -1)).flatten(2, 3)
    return (grouped @ key.transpose(-1, -2)).unflatten(2, (-1, query.shape[2])).flatten(1, 2)
