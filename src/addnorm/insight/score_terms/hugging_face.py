"""A layer's parts from a Transformers model with rotary position, recorded in one forward pass.

Known are attention modules with `q_proj` and `k_proj` that are handed `position_embeddings` and turn q and k by their file's
own `apply_rotary_pos_emb` (Llama, Qwen2, Mistral, Gemma and their relatives). What the attention is really given is seen by
an attention function of ours, registered with Transformers for the length of the pass. Whether a model's scores really
consist of the four terms (Qwen3's, with norms on q and k, do not) is checked at every pair.
"""

import importlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.errors import InputError
from addnorm.insight.score_terms.parts import Parts

_NAME = "addnorm_score_terms"


def parts_of(model: Any, tokens: Int64[Tensor, "sample seq"]) -> Iterator[Parts]:
    """Every attention layer's parts, in the dtype that the model has; call `model.double()` first for the sharpest check.

    Args:
        model: a `PreTrainedModel` in evaluation mode.
        tokens: ids.

    Raises:
        InputError: the model has no such attention.
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
    """The model's attention modules, in depth order.

    Raises:
        InputError: there are none that are known here.
    """
    found = [module for module in model.modules() if _looks_known(module)]
    if not found:
        raise InputError(
            f"four terms are those of rotary position: {type(model).__name__} has no attention with q_proj, k_proj and a "
            "rotation (apply_rotary_pos_emb). Known are Llama, Qwen2, Mistral, Gemma and their relatives."
        )
    return found


class _Call:
    """What one attention module was given, and what it gave to the attention function."""

    hidden: Tensor
    angles: tuple[Tensor, Tensor]
    query: Tensor
    key: Tensor
    scaling: float


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
                f"{type(module).__name__} is given no position_embeddings: its rotation is not known here."
            )
        call.angles = angles

    handles = [module.register_forward_pre_hook(enter, with_kwargs=True) for module in modules]
    token = _recorded.set(calls)
    before = model.config._attn_implementation
    _functions().register(_NAME, _attend)
    _masks().register(_NAME, _masks()["sdpa"])
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


def _attend(module: nn.Module, query: Tensor, key: Tensor, *rest: Any, scaling: float, **named: Any) -> Any:
    """Torch's attention, as Transformers calls it; what it is given is kept."""
    call = _recorded.get()[module]
    call.query, call.key, call.scaling = query, key, scaling
    return _functions()["sdpa"](module, query, key, *rest, scaling=scaling, **named)


def _functions() -> Any:
    return importlib.import_module("transformers.modeling_utils").ALL_ATTENTION_FUNCTIONS


def _masks() -> Any:
    return importlib.import_module("transformers.masking_utils").ALL_MASK_ATTENTION_FUNCTIONS


@torch.no_grad()
def _parts(layer: int, module: Any, call: _Call) -> Parts:
    heads, head_dim = call.query.shape[1], call.query.shape[-1]
    rotation = _rotation_of(module)
    cos, sin = (angle.double() for angle in call.angles)

    def rotate(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        # Angles of one sample serve all: no sample is padded, so positions are the same.
        turned: tuple[Tensor, Tensor] = rotation(query, key, cos[:1], sin[:1])
        return turned

    def projected(linear: nn.Linear) -> tuple[Tensor, Tensor, Tensor]:
        """Without bias; the bias; the sum of absolute values."""
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
        scale=torch.full((heads,), call.scaling, dtype=torch.float64, device=query.device),
        query_size=query_size,
        key_size=key_size,
        summands=module.q_proj.in_features,
    )
