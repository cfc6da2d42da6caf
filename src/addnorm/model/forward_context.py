"""The side inputs of one forward pass: what travels from layer to layer beside the stream.

Layers pass their queries and keys on to later ones (score residuals). Attention itself is computed by
`kernels/grouped_attention`; here each layer's problem is put together and an implementation is chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from addnorm.column import Column
from addnorm.errors import AddnormError, InputError
from addnorm.kernels.grouped_attention import (
    FEW_TERMS,
    IMPLEMENTATIONS,
    STORED_LIMIT,
    AttentionProblem,
    DecodingRows,
    LayerwiseAttention,
    Normalisation,
    ProductBuffers,
    ReversibleSum,
    RunningSum,
    ScoreBuffers,
    SeparateLayers,
    StoredProducts,
    is_planning,
    note,
    problem_of,
    running_bytes,
    running_limit,
    runs_on,
    stored_bytes,
    why_not_running,
    why_not_stored,
)
from addnorm.model.cache import Cache
from addnorm.model.forgetting import bias_with_gates, with_gates
from addnorm.model.trace import AttentionTrace
from addnorm.position import Position
from addnorm.scores import Scores
from addnorm.sink import Sinks
from addnorm.values import LayerValues, Values

Implementation = Literal["auto", "carry", "reference", "running", "sdpa", "stored", "streaming", "triton"]

RUNNING = ("running", "carry")
"""Names of the running sum of scores; "carry" is its name in version 0.1."""
ACROSS_LAYERS = (*RUNNING, "stored")
"""Names of the implementations that keep one layer's scores for the next."""
_SUMMED = ("running", "one weight for all layers: their sum is kept, and each layer multiplies its own scores alone")
_STORED = ("stored", "a weight per pair of layers: the products of all layers are kept")


@dataclass(frozen=True)
class Projections:
    """Queries and keys that a layer passes on to later ones."""

    query: Float[Tensor, "batch heads query head_dim"]
    key: Float[Tensor, "batch kv_heads query head_dim"]
    """Of the positions of this call."""
    keys: Float[Tensor, "batch kv_heads key head_dim"]
    """Of all positions, those in the cache included."""
    differentiable: bool
    """True if they were computed with gradients on."""


@dataclass(kw_only=True)
class ForwardContext:
    """The side inputs of one forward pass, and what its layers have passed on so far."""

    scores: Scores
    depth: int
    """Number of layers that attend."""
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
    tokens: Int64[Tensor, "batch seq"]
    """Ids of this call."""
    values: Values | None = None
    """None if every layer has its own values alone."""
    sinks: Sinks | None = None
    column: Column | None = None
    """None if rows attend to the sequence alone."""
    normalisation: Normalisation = "softmax"
    """Function from scores to attention."""
    cap: float | None = None
    """Bound of the summed scores' size."""
    windows: Sequence[int | None] = (None,)
    """Largest number of keys that a row sees, of each layer in turn; None for all."""
    impl: Implementation = "auto"
    """An implementation of `attend`; "running" or "carry" for a running sum of scores, "stored" for stored products."""
    buffers: ScoreBuffers = field(default_factory=ScoreBuffers)
    """Memory for a running sum, which outlives the pass."""
    products: ProductBuffers = field(default_factory=ProductBuffers)
    """Memory for the products of all layers, which outlives the pass."""
    foreign: Sequence[Any] = ()
    """Inputs of the modules of others in every layer, of a model whose branches hold some; see `ForeignBody`."""
    tracing: bool = False
    """True if `traced` is filled."""
    traced: AttentionTrace | None = None
    """The newest layer's attention."""
    _passed_on: dict[int, Projections] = field(default_factory=dict)
    """Projections of earlier layers: those that later layers need, or, with gradients on, all that a layer may need again."""
    _values: dict[int, tuple[LayerValues, Tensor | None, bool]] = field(default_factory=dict)
    """Own values of earlier layers that later ones may read, each with its keys if those are read, and with True if computed
    with gradients on."""
    _columns: dict[int, tuple[Tensor, Tensor, bool]] = field(default_factory=dict)
    """Keys and values of earlier layers at the positions of this call, with True if computed with gradients on."""
    _next: int = 0
    """The layer that attends next; an earlier one is computed again, by activation checkpointing."""
    _attention: LayerwiseAttention | None = None

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "batch heads query head_dim"],
        key: Float[Tensor, "batch kv_heads query head_dim"],
        value: Float[Tensor, "batch kv_heads query value_dim"],
        x: Float[Tensor, "batch query width"],
        gates: Float[Tensor, "batch heads query"] | None = None,
    ) -> Float[Tensor, "batch heads query value_dim"]:
        """The attended values of a layer, from its own projections and those that earlier layers passed on.

        Args:
            layer: the layer.
            query: its queries.
            key: its keys.
            value: the values that it attends to.
            x: what its queries read, after the norm.
            gates: logarithms of its forgetting gates; None without gates.

        Raises:
            InputError: the model's implementation of attention cannot do what is asked.
        """
        query, key = self.position.rotate_layer(layer, query, key, self.prepared)
        before = self._passed_on_by(layer - 1) if layer and self.scores.looks_back(layer) else None
        # What is passed on is rotated already: a later layer adds this layer's scores as they were here.
        own, own_key = self.scores.merge(query, key, None if before is None else (before.query, before.key))
        keys = own_key
        column = self._column(layer, own_key, value)
        if self.cache is not None:
            value = self.cache.values[layer].append(value)
            keys = self.cache.keys[layer].append(own_key)
            if not self.cache.length:
                keys = own_key  # the same numbers, without the room for more positions between heads
        present = Projections(own, own_key, keys, torch.is_grad_enabled())
        terms = [self._passed_on_by(index) for index in range(layer + 1 - self.scores.terms(layer), layer)] + [present]
        queries, all_keys, weights = (
            [term.query for term in terms],
            [term.keys for term in terms],
            self.scores.weights(layer),
        )
        bias = self.position.layer_bias(layer, x, self.prepared)
        if gates is not None:
            total = self._forgotten(layer, gates)
            scale = None if isinstance(weights, Tensor) or len(weights) > 1 or self.cap is not None else weights[0]
            if scale and total.shape[-1] == gates.shape[-1]:
                queries[0], all_keys[0] = with_gates(queries[0], all_keys[0], total, scale)
                further = queries[0].shape[-1] - query.shape[-1]  # at its own position, nothing has been forgotten
                column = [(nn.functional.pad(of_layer, (0, further)), values) for of_layer, values in column]
            else:
                bias = bias_with_gates(bias, total, gates.shape[-1], query.dtype)
        sinks = None if self.sinks is None else self.sinks.logits(layer)
        of_queries = None if self.sinks is None else self.sinks.of_queries(layer, x)
        problem = problem_of(
            queries,
            all_keys,
            value,
            weights,
            causal=self.causal,
            sliding_window=self._window(layer),
            bias=bias,
            padding=self.padding,
            dropout=self.dropout,
            normalisation=self.normalisation,
            cap=self.cap,
            sinks=sinks,
            column=column,
        )
        if sinks is not None and of_queries is not None:
            problem = replace(problem, sinks=sinks[:, None] + of_queries)
        with torch.no_grad():  # nothing here is differentiated; activation checkpointing counts what autograd saves
            if self._attention is None:
                self._attention = self._choose(problem, own_bias=gates is not None)
            if isinstance(self._attention, ReversibleSum | RunningSum) and self.scores.shared_weight(layer) is None:
                raise AddnormError(
                    f"scores: expected one weight for all layers up to {layer}, as for layer 0, got none."
                )
        if self.tracing:
            impl = "auto" if self.impl in ACROSS_LAYERS else self.impl
            self.traced = AttentionTrace(layer=layer, query=query, key=key, problem=problem, impl=impl)
        next_terms = self.scores.terms(layer + 1)
        if layer == self._next:
            self._next += 1
            # Not when activation checkpointing computes an earlier layer again: later layers keep what its first run
            # passed on, into which their gradients flow.
            self._pass_on(layer, present, next_terms)
        return self._attention.attend(problem, next_terms=next_terms)

    def join_values(
        self,
        layer: int,
        own: LayerValues | None,
        x: Float[Tensor, "batch seq width"],
        query: Float[Tensor, "batch heads seq head_dim"],
        key: Float[Tensor, "batch kv_heads seq head_dim"],
    ) -> LayerValues:
        """The values that a layer attends to, of the positions of this call.

        Args:
            layer: the layer, whose `attend` is called next.
            own: its own values; None if it has none.
            x: what its branch reads, after the norm.
            query: its queries, not rotated.
            key: its keys, not rotated.

        Raises:
            InputError: a value residual that joins nothing in a layer without values of its own; or an earlier layer's values
                are needed with gradients, but were first computed without.
        """
        if self.values is None:
            if own is None:
                raise InputError(f"values: expected a value residual that gives layer {layer} values, got none.")
            return own
        earlier = [self._values_of(source) for source in self.values.sources(layer)]
        reads_keys = self.values.reads_keys
        further: dict[str, Any] = {}
        if reads_keys:
            further = {"query": query, "keys": [*(cast(Tensor, keys) for _, keys in earlier), key]}
        if layer == self._next and own is not None and layer in self.values.read:
            self._values[layer] = own, key if reads_keys else None, torch.is_grad_enabled()
        return self.values.join(layer, own, [value for value, _ in earlier], x, self.tokens, **further)

    def _column(self, layer: int, key: Tensor, value: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of the earlier layers in a layer's column; its own are kept for later ones."""
        if self.column is None:
            return []
        if layer == self._next and layer in self.column.read:
            self._columns[layer] = key, value, torch.is_grad_enabled()
        entries = []
        for source in self.column.sources(layer):
            keys, values, differentiable = self._columns[source]
            if torch.is_grad_enabled() and not differentiable:
                raise _recomputed("column", source, "keys and values")
            entries.append((keys, values))
        return entries

    def _values_of(self, layer: int) -> tuple[LayerValues, Tensor | None]:
        value, key, differentiable = self._values[layer]
        if torch.is_grad_enabled() and not differentiable:
            raise _recomputed("values", layer, "values")
        return value, key

    def _pass_on(self, layer: int, present: Projections, next_terms: int) -> None:
        """Keep what a layer passes on, and drop what no layer needs any more."""
        self._passed_on[layer] = present
        # With gradients on, activation checkpointing may run any layer again, however late, and the layer then needs
        # its predecessor's projections. Without gradients, what no later layer adds is dropped at once.
        if not (torch.is_grad_enabled() and self.scores.looks_back(layer + 1)):
            for index in [index for index in self._passed_on if index <= layer - next_terms]:
                del self._passed_on[index]

    def _passed_on_by(self, layer: int) -> Projections:
        """Projections that an earlier layer passed on.

        Raises:
            InputError: the layer after it is computed again with gradients, but was first computed without.
        """
        present = self._passed_on.get(layer)
        if present is None or (self._next > layer + 1 and torch.is_grad_enabled() and not present.differentiable):
            raise _recomputed("scores", layer, "queries and keys")
        return present

    def attend_again(
        self, layers: Sequence[int], values: Float[Tensor, "layers batch kv_heads key value_dim"]
    ) -> Float[Tensor, "layers batch heads query value_dim"]:
        """The attention that earlier layers computed, applied to other values: one tensor per layer."""
        if self._attention is None:
            raise AddnormError("attend_again: expected an earlier layer that attends, got none.")
        return self._attention.attend_again(layers, values)

    def _window(self, layer: int) -> int | None:
        """The smaller of the layer's own window and the position's."""
        own, of_position = self.windows[layer % len(self.windows)], self.position.window(self.prepared)
        return own if of_position is None else of_position if own is None else min(own, of_position)

    def _forgotten(self, layer: int, gates: Float[Tensor, "batch heads query"]) -> Float[Tensor, "batch heads key"]:
        """The sums of the logarithms of gates up to every position, those in the cache included."""
        if self.cache is None:
            return gates.cumsum(-1)
        # Sums are kept, not gates: a new position adds to the last sum, and does not go through the past again.
        kept = self.cache.forgotten[layer]
        last = kept.append(gates.new_empty(*gates.shape[:2], 0, 1))[..., -1:, 0] if self.cache.length else 0.0
        return kept.append((last + gates.cumsum(-1))[..., None])[..., 0]

    def _choose(self, problem: AttentionProblem, *, own_bias: bool) -> LayerwiseAttention:
        """The implementation for this pass, from its first layer's problem.

        Args:
            problem: of the first layer.
            own_bias: True if every layer adds a bias that depends on its input.

        Raises:
            InputError: a running sum or stored products were asked for, and cannot be kept.
        """
        shared = self.scores.shared_weight(0) is not None
        # Chosen once per pass, at its first layer: a running sum or stored products must have the first layer's scores,
        # and cannot be begun later.
        decoding = self.cache is not None and self.cache.length > 0
        same_rows = self.cap is None and len(set(self.windows)) == 1  # of all layers, so that one sum serves them
        if decoding:
            return RunningSum(keep=self.replays) if shared and same_rows else DecodingRows(keep=self.replays)
        if self.tracing:  # a trace is read layer by layer
            return SeparateLayers("auto" if self.impl in ACROSS_LAYERS else self.impl, keep=self.replays)
        if self.impl in ACROSS_LAYERS or (self.impl == "auto" and same_rows and not own_bias):
            stores = self.impl == "stored" or (
                self.impl == "auto" and stores_products(self.scores, self.depth, problem)
            )
            reason = why_not_stored(problem) if stores else why_not_running(problem)
            if self.replays:
                reason = "expected a residual that does not replay the attention of earlier layers"
            summed = self.impl in RUNNING or keeps_running_sum(self.scores, self.depth, problem)
            if reason is None and (stores or summed) and is_planning(problem):
                note(*(_STORED if stores else _SUMMED))
                return _Noted("streaming", keep=self.replays)
            if reason is None and stores:
                return StoredProducts(self.products, depth=self.depth)
            if reason is None and summed:
                return ReversibleSum(self.buffers)
            if self.impl in ACROSS_LAYERS:
                raise InputError(f"attention: {self.impl}: {reason}. Use 'auto' or 'streaming'.")
        return SeparateLayers(self.impl, keep=self.replays)


class _Noted(SeparateLayers):
    """Layers of a pass without numbers, whose way was noted for all of them."""

    def attend(self, problem: AttentionProblem, *, next_terms: int) -> Tensor:
        return IMPLEMENTATIONS[self.impl](problem)


def _recomputed(room: str, layer: int, what: str) -> InputError:
    return InputError(
        f"{room}: expected layer {layer}'s {what} with their gradients, got none: a layer is computed again whose first "
        "computation recorded none. Call torch.utils.checkpoint with use_reentrant=False."
    )


def keeps_running_sum(scores: Scores, depth: int, problem: AttentionProblem) -> bool:
    """True if impl="auto" keeps a running sum of scores, where nothing forbids it: several layers' scores are summed with one
    weight, and the two buffers take at most `running_limit` bytes. On a GPU more layers than FEW_TERMS, too: up to there the
    kernels multiply every layer's terms again."""
    if scores.terms(1) < 2 or scores.shared_weight(0) is None:
        return False
    if runs_on(problem).type == "cuda" and depth <= FEW_TERMS:
        return False
    return running_bytes(problem) <= running_limit(problem)


def sums_all_layers(scores: Scores, depth: int) -> bool:
    """True if every layer's scores are a sum over all layers up to it."""
    return depth > 1 and all(scores.terms(layer) == layer + 1 for layer in range(depth))


def stores_products(scores: Scores, depth: int, problem: AttentionProblem) -> bool:
    """True if impl="auto" stores the products of all layers, where nothing forbids it: scores are summed over all layers with a
    weight per pair of layers, and the products take at most STORED_LIMIT bytes."""
    if runs_on(problem).type == "cuda" or scores.shared_weight(0) is not None or not sums_all_layers(scores, depth):
        return False
    return stored_bytes(problem, depth=depth) <= STORED_LIMIT
