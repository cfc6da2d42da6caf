"""A layer's parts from a Transformers model with rotary position, recorded in one forward pass.

Supported are attention modules with `q_proj` and `k_proj` that get `position_embeddings` and rotate q and k by
`apply_rotary_pos_emb` of their own file (Llama, Qwen2, Mistral, Gemma and related models). The inputs of the attention itself
are recorded by an attention function that is registered with Transformers during the pass and calls the model's own, so that
sinks and capped scores keep their effect on later layers. At every pair it is checked that the scores, before a cap, consist of
the four terms (those of Qwen3, with norms on q and k, do not).
"""

import importlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.errors import InputError
from addnorm.insight.score_terms.parts import Parts

_NAME = "addnorm_score_terms"


def parts_of(model: Any, tokens: Int64[Tensor, "sample seq"]) -> Iterator[Parts]:
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
    found = [module for module in model.modules() if _looks_known(module)]
    if not found:
        raise InputError(
            f"the four terms: expected attention with q_proj, k_proj and a rotation (apply_rotary_pos_emb), got "
            f"{type(model).__name__}. Supported are Llama, Qwen2, Mistral, Gemma and related models."
        )
    return found


class _Call:
    """Inputs of one attention module, and of the attention function that it called."""

    hidden: Tensor
    angles: tuple[Tensor, Tensor]
    query: Tensor
    key: Tensor
    scaling: float | None


_Calls = dict[nn.Module, _Call]
_recorded: ContextVar[_Calls] = ContextVar("recorded")


@torch.no_grad()
def _record(model: Any, modules: list[nn.Module], tokens: Tensor) -> _Calls:
    calls: _Calls = {}

    def enter(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        call = calls[module] = _Call()
        call.hidden = arguments[0] if arguments else named["hidden_states"]
        angles = named.get("position_embeddings")
        if angles is None:
            raise InputError(
                f"{type(module).__name__}: expected position_embeddings, got none. Its rotation is not supported."
            )
        call.angles = angles

    handles = [module.register_forward_pre_hook(enter, with_kwargs=True) for module in modules]
    token = _recorded.set(calls)
    before = model.config._attn_implementation
    _functions().register(_NAME, partial(_attend, before))
    _masks().register(_NAME, _masks()[before])
    model.set_attn_implementation(_NAME)
    try:
        model(input_ids=tokens, use_cache=False)
    finally:
        model.set_attn_implementation(before)
        _recorded.reset(token)
        for handle in handles:
            handle.remove()
    for module, call in calls.items():
        if not hasattr(call, "query"):
            raise InputError(f"{type(module).__name__} does not attend through Transformers' attention interface.")
    return calls


def _attend(implementation: str, module: nn.Module, query: Tensor, key: Tensor, *rest: Any, **named: Any) -> Any:
    """Call the attention that the model asks for, and record its inputs."""
    call = _recorded.get().get(module)
    if call is not None:
        call.query, call.key, call.scaling = query, key, named.get("scaling")
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    return _functions().get_interface(implementation, eager)(module, query, key, *rest, **named)


def _functions() -> Any:
    return importlib.import_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS


def _masks() -> Any:
    return importlib.import_module("transformers.masking_utils").ALL_MASK_ATTENTION_FUNCTIONS


@torch.no_grad()
def _parts(layer: int, module: Any, call: _Call) -> Parts:
    heads, head_dim = call.query.shape[1], call.query.shape[-1]
    scaling = head_dim**-0.5 if call.scaling is None else call.scaling
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
        split = (F.linear(x, weight), F.linear(x.abs(), weight.abs()) + bias.abs())
        plain, size = (entries.unflatten(-1, (-1, head_dim)).transpose(1, 2) for entries in split)
        return plain, bias.view(-1, head_dim), size

    query, query_bias, query_size = projected(module.q_proj)
    key, key_bias, key_size = projected(module.k_proj)
    return Parts(
        layer=layer,
        query=query,
        key=key,
        query_bias=query_bias,
        key_bias=key_bias,
        rotate=rotate,
        attended_query=call.query,
        attended_key=call.key,
        scale=torch.full((heads,), scaling, dtype=torch.float64, device=query.device),
        query_size=query_size,
        key_size=key_size,
        summands=module.q_proj.in_features,
    )
