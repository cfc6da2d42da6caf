"""Score and value residuals in a model of Transformers, through its registry of attention functions.

An attention function gets the queries of the present positions, and keys and values of all positions, from the cache if there
is one. That is all that a score residual needs of an earlier layer, so a cache of the model's own makes decoding exact.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention import attend
from addnorm.scores import Scores
from addnorm.values import Values

IMPLEMENTATION = "addnorm"
"""Name of the attention function in Transformers' registry."""
_MARK = "_addnorm_attention"
_UNKNOWN = ("softcap", "s_aux", "position_bias")
"""Arguments of attention functions that would change the scores."""


@dataclass(frozen=True, kw_only=True)
class AttentionCall:
    """One call of an attention function, in the axes of `addnorm.attend`."""

    query: Tensor
    key: Tensor
    """Of all positions, those in the cache included."""
    value: Tensor
    scaling: float
    settings: dict[str, Any]
    """`causal`, `bias` and `dropout` of `addnorm.attend`."""


class MarkedAttention(Protocol):
    """Computation of a marked module's attention."""

    def attend(self, module: nn.Module, layer: int, call: AttentionCall) -> Tensor:
        """The attended values [batch, heads, query, value_dim]."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a model's attention."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int


class NotedAttention:
    """The model's own attention; notes which modules attend, with which sizes."""

    def __init__(self) -> None:
        self.modules: list[nn.Module] = []
        self.sizes: list[Sizes] = []

    def attend(self, module: nn.Module, layer: int, call: AttentionCall) -> Tensor:
        heads, head_dim = call.query.shape[1], call.query.shape[3]
        self.modules.append(module)
        self.sizes.append(
            Sizes(heads=heads, kv_heads=call.key.shape[1], head_dim=head_dim, value_dim=call.value.shape[3])
        )
        return attend([call.query], [call.key], call.value, [call.scaling], **call.settings)


class JoinedAttention:
    """Attention of all layers with scores and values of ours. Values do not read the branch's input, nor tokens."""

    def __init__(self, scores: Scores, values: Values | None, depth: int) -> None:
        self.scores, self.values, self.depth = scores, values, depth
        self.passed: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        """Query, key and own value of the layers so far."""

    def attend(self, module: nn.Module, layer: int, call: AttentionCall) -> Tensor:
        before = self.passed.get(layer - 1) if layer else None
        query, key = self.scores.merge(call.query, call.key, before if before is None else before[:2])
        # Keys and values of all positions, the cache's included, for the queries of this call. So a later layer's sum
        # is over the same pairs with and without a cache.
        self.passed[layer] = query, key, call.value
        terms = [self.passed[index] for index in range(layer + 1 - self.scores.terms(layer), layer + 1)]
        value = call.value
        if self.values is not None:
            earlier = [self.passed[source][2] for source in self.values.sources(layer)]
            absent: Any = None
            value = self.values.join(layer, value, earlier, absent, absent)
        weights = self.scores.weights(layer)
        factor = call.scaling * query.shape[-1] ** 0.5  # weights contain 1/sqrt(head_dim); a model may scale otherwise
        scaled = weights * factor if isinstance(weights, Tensor) else [weight * factor for weight in weights]
        # They hold the graph of the pass, and with it its memory.
        if layer == self.depth - 1:
            self.passed = {}
        return attend([term[0] for term in terms], [term[1] for term in terms], value, scaled, **call.settings)


def mark(module: nn.Module, attention: MarkedAttention, layer: int) -> None:
    """Let a module's attention be computed by `attention`."""
    module.__dict__[_MARK] = attention, layer  # not a submodule


def unmark(module: nn.Module) -> None:
    """Undo `mark`."""
    module.__dict__.pop(_MARK, None)


def register() -> None:
    """Add the attention function, and masks for it, to the registries of Transformers; again if it is there."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, _attention_function)
    ALL_MASK_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, sdpa_mask)


def _attention_function(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend as Transformers asks: return [batch, query, heads, value_dim], and no probabilities.

    Raises:
        InputError: the module is not patched, or changes its scores in a way that the sum of several layers does not define.
    """
    marked: tuple[MarkedAttention, int] | None = module.__dict__.get(_MARK)
    if marked is None:
        raise InputError(
            f"{type(module).__name__}: expected a patched model, got attention 'addnorm' without a patch. Call addnorm.patch, "
            "or model.set_attn_implementation('sdpa')."
        )
    unknown = next((name for name in _UNKNOWN if others.get(name) is not None), None)
    if unknown is not None:
        raise InputError(
            f"patch: expected attention that is a softmax of scaled scores, got {type(module).__name__} with {unknown!r}. "
            "Patch `residual` alone, which leaves attention as it is."
        )
    if torch.is_autocast_enabled(query.device.type):  # torch's own attention narrows queries that rotation has widened
        narrow = torch.get_autocast_dtype(query.device.type)
        query, key, value = (tensor.to(narrow) for tensor in (query, key, value))
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    attention, layer = marked
    attended = attention.attend(
        module,
        layer,
        AttentionCall(
            query=query,
            key=key,
            value=value,
            scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
            settings={
                "causal": causal and attention_mask is None,
                "bias": None if attention_mask is None else _bias(attention_mask, value),
                "dropout": dropout,
            },
        ),
    )
    return attended.transpose(1, 2).contiguous(), None


def _bias(mask: Tensor, value: Tensor) -> Tensor:
    """A mask as a bias [batch, 1, query, key]. A row of padding sees every key alike, which no real row reads."""
    if mask.dtype != torch.bool:
        return mask
    hidden = torch.finfo(value.dtype).min
    return torch.zeros(mask.shape, dtype=value.dtype, device=value.device).masked_fill(~mask, hidden)


# Where layers read scores or values of earlier ones, the model's own cache must have the same positions for both. A model
# that mixes full and sliding layers keeps few positions for the sliding ones; a layer with a longer window needs the
# earlier layers' keys of all positions that it sees, and its own mask hides the others. So all layers keep all.


def keep_all_positions(module: nn.Module, args: tuple[Any, ...], settings: Mapping[str, Any]) -> None:
    """Hook before the first layer: make the sliding layers of a mixed cache full ones.

    Masks are computed before the first layer, from the cache as it was. They fit all the same, because a full layer has as
    many positions as a sliding one that has lost none.

    Raises:
        InputError: positions are lost, or the cache has fixed lengths.
    """
    from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

    cache = next((given for given in (*args, *settings.values()) if isinstance(given, Cache)), None)
    layers = getattr(cache, "layers", [])
    # Layers that all keep the same positions can read each other as they are.
    if len({_kept(layer) for layer in layers}) < 2:
        return
    for index, layer in enumerate(layers):
        if not getattr(layer, "is_sliding", False):
            continue
        if type(layer) is not DynamicSlidingWindowLayer or layer.get_seq_length() >= layer.sliding_window:
            raise InputError(
                f"past_key_values: expected a DynamicCache that the patched model filled, got a {type(layer).__name__} that "
                f"keeps {_kept(layer)} positions, where other layers keep more and read its scores or values. Leave the cache "
                "to the model."
            )
        full = DynamicLayer()
        if layer.is_initialized:
            full.lazy_initialization(layer.keys, layer.values)
            full.keys, full.values = layer.keys, layer.values
        layers[index] = full


def _kept(layer: Any) -> int | None:
    """Number of positions that a layer of a cache keeps; None for all."""
    window: int | None = getattr(layer, "sliding_window", getattr(layer, "max_cache_len", None))
    return window
