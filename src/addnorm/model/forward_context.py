"""The side inputs of one forward pass: what travels from layer to layer beside the stream.

Layers pass their queries and keys on to later ones (score residuals). Attention itself is computed by
`kernels/grouped_attention`; here each layer's problem is put together and an implementation is chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from addnorm.errors import AddnormError, InputError
from addnorm.kernels.grouped_attention import (
    AttentionProblem,
    DecodingRows,
    LayerwiseAttention,
    Normalisation,
    RunningSum,
    SeparateLayers,
    problem_of,
)
from addnorm.model.cache import Cache
from addnorm.model.trace import AttentionTrace
from addnorm.position import Position
from addnorm.scores import Scores

Implementation = Literal["auto", "carry", "reference", "sdpa", "streaming", "triton"]
RUNNING_SUM_LENGTH = 768
"""Longest sequence for which impl="auto" keeps a running sum of scores: with eight layers it takes 0.7 of the time of
streaming there and 1.1 at 1024 (docs/benchmarks.md)."""


@dataclass(frozen=True)
class Projections:
    """Queries and keys that a layer passes on to later ones."""

    query: Float[Tensor, "batch heads query head_dim"]
    key: Float[Tensor, "batch kv_heads query head_dim"]
    """Of the positions of this call."""
    keys: Float[Tensor, "batch kv_heads key head_dim"]
    """Of all positions, those in the cache included."""


@dataclass(kw_only=True)
class ForwardContext:
    """The side inputs of one forward pass, and what its layers have passed on so far."""

    scores: Scores
    position: Position
    prepared: Any
    """Values that the position computed once for this pass."""
    causal: bool
    padding: Bool[Tensor, "batch seq"] | None
    dropout: float
    """Rate on the attention probabilities; 0 outside training."""
    cache: Cache | None
    replays: bool
    """True if the residual applies the attention of earlier layers again."""
    normalisation: Normalisation = "softmax"
    """Function from scores to attention."""
    impl: Implementation = "auto"
    """An implementation of `attend`, or "carry" for a running sum of scores."""
    tracing: bool = False
    """True if `traced` is filled."""
    traced: AttentionTrace | None = None
    """The newest layer's attention."""
    _passed_on: list[Projections] = field(default_factory=list)
    """Projections of the most recent layers, as many as the next layer needs."""
    _attention: LayerwiseAttention | None = None

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "batch heads query head_dim"],
        key: Float[Tensor, "batch kv_heads query head_dim"],
        value: Float[Tensor, "batch kv_heads query value_dim"],
    ) -> Float[Tensor, "batch heads query value_dim"]:
        """The attended values of a layer, from its own projections and those that earlier layers passed on.

        Raises:
            InputError: the model's implementation of attention cannot do what is asked.
        """
        query, key = self.position.rotate(query, key, self.prepared)
        before = self._passed_on[-1] if self._passed_on else None
        own, own_key = self.scores.merge(query, key, None if before is None else (before.query, before.key))
        keys = own_key
        if self.cache is not None:
            value = self.cache.values[layer].append(value)
            keys = self.cache.keys[layer].append(own_key)
            if not self.cache.length:
                keys = own_key  # the same numbers, without the room for more positions between heads
        self._passed_on.append(Projections(own, own_key, keys))
        terms = self._passed_on[-self.scores.terms(layer) :]
        problem = problem_of(
            [term.query for term in terms],
            [term.keys for term in terms],
            value,
            self.scores.weights(layer),
            causal=self.causal,
            sliding_window=self.position.window(self.prepared),
            bias=self.position.score_bias(layer, self.prepared),
            padding=self.padding,
            dropout=self.dropout,
            normalisation=self.normalisation,
        )
        if self._attention is None:
            self._attention = self._choose(problem)
        if isinstance(self._attention, RunningSum) and self.scores.shared_weight(layer) is None:
            raise AddnormError(f"scores: expected one weight for all layers up to {layer}, as for layer 0, got none.")
        if self.tracing:
            impl = "auto" if self.impl == "carry" else self.impl
            self.traced = AttentionTrace(layer=layer, query=query, key=key, problem=problem, impl=impl)
        next_terms = self.scores.terms(layer + 1)
        self._passed_on = self._passed_on[-next_terms:]
        return self._attention.attend(problem, next_terms=next_terms)

    def attend_again(
        self, layers: Sequence[int], values: Float[Tensor, "layers batch kv_heads key value_dim"]
    ) -> Float[Tensor, "layers batch heads query value_dim"]:
        """The attention that earlier layers computed, applied to other values: one tensor per layer."""
        if self._attention is None:
            raise AddnormError("attend_again: expected an earlier layer that attends, got none.")
        return self._attention.attend_again(layers, values)

    def _choose(self, problem: AttentionProblem) -> LayerwiseAttention:
        """The implementation for this pass, from its first layer's problem."""
        shared = self.scores.shared_weight(0) is not None
        decoding = self.cache is not None and self.cache.length > 0
        if shared and (decoding or self._keeps_running_sum(problem)):
            return RunningSum(keep=self.replays)
        if decoding:
            return DecodingRows(keep=self.replays)
        return SeparateLayers("auto" if self.impl == "carry" else self.impl, keep=self.replays)

    def _keeps_running_sum(self, problem: AttentionProblem) -> bool:
        if self.tracing:  # a trace is read in memory that is linear in the length
            return False
        if self.impl == "carry":
            if problem.padding is not None:
                raise InputError("attention: carry: expected no padding, got some. Use 'auto' or 'streaming'.")
            return True
        return (
            self.impl == "auto"
            and problem.padding is None
            and not self.replays
            and problem.queries[0].dtype in (torch.float32, torch.float64)
            and problem.value.device.type in ("cpu", "meta")
            and keeps_running_sum(self.scores, problem.key)
        )


def keeps_running_sum(scores: Scores, length: int) -> bool:
    """True if "auto" keeps a running sum of scores for sequences of this length: on a CPU, in float32 or float64, without
    padding and without replayed layers. Other cases have not been measured."""
    return length <= RUNNING_SUM_LENGTH and scores.terms(1) > 1 and scores.shared_weight(0) is not None
