"""A layer's parts from a Transformers model with rotary position, recorded in one forward pass.

Supported are attention modules with `q_proj` and `k_proj` that get `position_embeddings` and rotate q and k by
`apply_rotary_pos_emb` of their own file (Llama, Qwen2, Mistral, Gemma and related models). The model computes attention
itself and is only recorded, so that sinks and capped scores keep their effect on later layers. At every pair it is checked that
the scores, before a cap, consist of the four terms (those of Qwen3, with norms on q and k, do not).
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.anatomy.attention import RecordedAttention
from addnorm.anatomy.recording import record
from addnorm.errors import InputError
from addnorm.insight.score_terms.parts import ScoreFactors


def parts_of(model: Any, tokens: Int64[Tensor, "sample seq"]) -> Iterator[ScoreFactors]:
    """Iterate over the parts of every attention layer, in the model's dtype; after `model.double()` the check is strictest.

    Args:
        model: a `PreTrainedModel` in evaluation mode.
        tokens: ids.

    Raises:
        InputError: the model has no supported attention.
    """
    modules = attention_modules(model)
    calls = _record(model, modules, tokens)
    for layer, module in enumerate(modules):
        if module not in calls:
            raise InputError(f"layer {layer} of {type(model).__name__} was not run on these tokens.")
        yield _parts(layer, module, calls[module])


def _looks_known(module: nn.Module) -> bool:
    projections = (getattr(module, name, None) for name in ("q_proj", "k_proj"))
    return all(isinstance(projection, nn.Linear) for projection in projections) and _rotation_of(module) is not None


def _rotation_of(module: nn.Module) -> Any:
    return getattr(sys.modules[type(module).__module__], "apply_rotary_pos_emb", None)


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """Return the model's attention modules, in order of depth.

    Raises:
        InputError: none is supported.
    """
    modules = [module for module in model.modules() if _looks_known(module)]
    if not modules:
        raise InputError(
            f"the four terms: expected attention with q_proj, k_proj and a rotation (apply_rotary_pos_emb), got "
            f"{type(model).__name__}. Supported are Llama, Qwen2, Mistral, Gemma and related models."
        )
    return modules


@dataclass(frozen=True, kw_only=True, eq=False)
class _Call:
    """Inputs of one attention module, and the factors of its scores."""

    hidden: Tensor
    angles: tuple[Tensor, Tensor]
    query: Tensor
    key: Tensor
    """Heads that serve several query heads may be repeated."""
    scale: float | None


@torch.no_grad()
def _record(model: Any, modules: list[nn.Module], tokens: Tensor) -> dict[nn.Module, _Call]:
    calls: dict[nn.Module, _Call] = {}

    # One module at a time, since a record keeps all tensors alive, and with them the weights of attention.
    def forward(module: nn.Module, own: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        events, output = record(module, partial(own, *arguments, **named))
        hidden = arguments[0] if arguments else named["hidden_states"]
        calls[module] = _call(module, hidden, named.get("position_embeddings"), events.attentions)
        return output

    before = [(module, vars(module).get("forward")) for module in modules]
    try:
        for module in modules:
            # On the instance, not the class, and taken back below whatever happens: the caller's model is not changed.
            vars(module)["forward"] = partial(forward, module, module.forward)
        model(input_ids=tokens, use_cache=False)
    finally:
        for module, given in before:
            vars(module).pop("forward", None)
            if given is not None:  # of a library that wraps the forward passes of a model
                vars(module)["forward"] = given
    return calls


def _call(module: nn.Module, hidden: Tensor, angles: Any, attentions: Sequence[RecordedAttention]) -> _Call:
    if angles is None:
        raise InputError(
            f"{type(module).__name__}: expected position_embeddings, got none. Its rotation is not supported."
        )
    query, key = (attentions[0].query, attentions[0].key) if attentions else (None, None)
    if query is None or key is None:
        raise InputError(
            f"{type(module).__name__}: expected scores that are a product of queries and keys, got others."
        )
    scale = attentions[0].scale
    return _Call(
        hidden=hidden,
        angles=angles,
        query=query,
        key=key,
        scale=getattr(module, "scaling", None) if scale is None else scale,
    )


@torch.no_grad()
def _parts(layer: int, module: Any, call: _Call) -> ScoreFactors:
    heads, head_dim = call.query.shape[1], call.query.shape[-1]
    scale = head_dim**-0.5 if call.scale is None else call.scale
    rotation = _rotation_of(module)
    cos, sin = (angle.double() for angle in call.angles)

    def rotate(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        # All samples have the same angles, because none is padded.
        turned: tuple[Tensor, Tensor] = rotation(query, key, cos[:1], sin[:1])
        return turned

    def projected(linear: nn.Linear) -> tuple[Tensor, Tensor, Tensor]:
        """Return the projection without bias, the bias, and the sums of absolute values."""
        x, weight = call.hidden.double(), linear.weight.detach().double()
        bias = weight.new_zeros(len(weight)) if linear.bias is None else linear.bias.detach().double()
        split = (F.linear(x, weight), F.linear(x.abs(), weight.abs()))
        plain, size = (entries.unflatten(-1, (-1, head_dim)).transpose(1, 2) for entries in split)
        return plain, bias.view(-1, head_dim), size

    query, query_bias, query_size = projected(module.q_proj)
    key, key_bias, key_size = projected(module.k_proj)
    return ScoreFactors(
        layer=layer,
        query=query,
        key=key,
        query_bias=query_bias,
        key_bias=key_bias,
        rotate=rotate,
        attended_query=call.query,
        # One head of each group: attention was called with keys that had been repeated for their query heads.
        attended_key=call.key[:, :: call.key.shape[1] // key.shape[1]],
        scale=torch.full((heads,), scale, dtype=torch.float64, device=query.device),
        query_size=query_size,
        key_size=key_size,
        summands=module.q_proj.in_features,
    )
