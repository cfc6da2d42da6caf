"""Tables of classes with one stream."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.catalogue import ROOMS
from addnorm.outside.hugging_face.shipped import (
    LayerInputs,
    ShippedBranch,
    ShippedClass,
    copy_rows,
    first,
)

_TOWERS = (r"model\.(vision_tower|vision_adapter|vision_projection|audio_tower|multi_modal_projector)\..*",)


def _in_sandwich(layer: Any) -> tuple[ShippedBranch, ...]:
    """Branches with a norm on the input and one on the output, by the names that most classes give them."""
    return (
        ShippedBranch(
            body=layer.self_attn,
            role="attention",
            input_norm=layer.input_layernorm,
            output_norm=layer.post_attention_layernorm,
        ),
        ShippedBranch(
            body=layer.mlp,
            role="feedforward",
            input_norm=layer.pre_feedforward_layernorm,
            output_norm=layer.post_feedforward_layernorm,
        ),
    )


class Beam(ShippedClass):
    """`BeamForCausalLM`: depth-scaled sum."""

    kind, architecture, placement = "beam", "BeamForCausalLM", "sandwich"
    joint = ("residual", "depth_scaled")
    theirs = "gated attention, experts, norms"
    note = "The embeddings count as the first term, so that the first branch is the second."

    def branches(self, layer: Any, index: int) -> Sequence[ShippedBranch]:
        return _in_sandwich(layer)


class MuseSpark(ShippedClass):
    """The language model of `MuseSparkForConditionalGeneration`: variance-keeping gate."""

    kind, architecture, placement = "muse_spark", "MuseSparkForConditionalGeneration", "sandwich"
    stack, text_config = "model.language_model", "text_config"
    joint = ("residual", "variance_keeping")
    theirs = "attention, experts, norms"
    note = "1 - beta² is cut off at 1e-3: a gate beyond 0.9995 has no gradient."
    unused_by_text = _TOWERS

    def residual(self, config: Any) -> Mapping[str, Any]:
        return {"kind": "variance_keeping", "temperature": config.residual_gate_temperature}

    def fill(self, residual: Any, stack: Any) -> Sequence[nn.Module | nn.Parameter]:
        gates = [
            gate
            for layer in stack.layers
            for gate in (layer.post_attention_residual_gate, layer.post_feedforward_residual_gate)
        ]
        copy_rows(residual.gate, [gate.gate for gate in gates])
        return gates

    def branches(self, layer: Any, index: int) -> Sequence[ShippedBranch]:
        return _in_sandwich(layer)

    def logits(self, logits: Tensor, config: Any) -> Tensor:
        return super().logits(logits * config.output_multiplier, config)


class Doge(ShippedClass):
    """`DogeForCausalLM`: per-channel stream weight."""

    kind, architecture = "doge", "DogeForCausalLM"
    joint = ("residual", "stream_weight")
    theirs = "attention with a dynamic mask, experts, norms"
    note = "With `is_moe` the class's routing mixes tokens of a full pass: its own decoding differs from it too."

    def fill(self, residual: Any, stack: Any) -> Sequence[nn.Module | nn.Parameter]:
        weights = [weight for layer in stack.layers for weight in (layer.input_residual, layer.post_attention_residual)]
        copy_rows(residual.weight, weights)
        return weights


def _route(module: Any, x: Any, given: LayerInputs) -> Tensor:
    output, given.passed_on["router"] = module(x, given.passed_on.get("router"))
    result: Tensor = output
    return result


class Zaya(ShippedClass):
    """`ZayaForCausalLM`: affine residual."""

    kind, architecture = "zaya", "ZayaForCausalLM"
    withheld = ("prev_router_hidden_states",)
    returns_more = True
    joint = ("residual", "affine")
    theirs = "attention with convolutions, experts whose routers pass states on, norms, affine map of the embeddings"
    note = "Of two shifts per branch one is redundant: only r s + h t matters. The class keeps its stream in float32."

    def fill(self, residual: Any, stack: Any) -> Sequence[nn.Module | nn.Parameter]:
        scalings = [
            scaling
            for layer in stack.layers
            for scaling in (layer.post_attention_residual_scale, layer.post_mlp_residual_scale)
        ]
        for ours, theirs in (("stream", "residual"), ("output", "hidden_states")):
            copy_rows(getattr(residual, f"{ours}_scale"), [getattr(one, f"{theirs}_scale") for one in scalings])
            copy_rows(getattr(residual, f"{ours}_shift"), [getattr(one, f"{theirs}_bias") for one in scalings])
        return scalings

    def branches(self, layer: Any, index: int) -> Sequence[ShippedBranch]:
        attention, experts = super().branches(layer, index)
        return attention, replace(experts, call=_route)


class AXK2(ShippedClass):
    """`AXK2ForCausalLM`: gated norms."""

    kind, architecture = "axk2", "AXK2ForCausalLM"
    joint = ("norm", "gated")
    theirs = "latent attention with an indexer, experts, plain norms"
    note = "The norm is the joint: its gains do not fold into the next matrices, and a shut gate halves them."

    def norm(self, config: Any) -> Mapping[str, Any]:
        return {"kind": "gated", "rank": config.gated_norm_rank, "eps": config.rms_norm_eps}

    def branches(self, layer: Any, index: int) -> Sequence[ShippedBranch]:
        return tuple(replace(part, input_norm=_as_ours(part.input_norm)) for part in super().branches(layer, index))

    def fill(self, residual: Any, stack: Any) -> Sequence[nn.Module | nn.Parameter]:
        norms = [norm for layer in stack.layers for norm in (layer.input_layernorm, layer.post_attention_layernorm)]
        return [norm for norm in norms if hasattr(norm, "mlp")]


def _as_ours(norm: Any) -> nn.Module:
    """A gated norm of this library with the numbers of theirs; a plain one as it is."""
    if not hasattr(norm, "mlp"):
        plain: nn.Module = norm
        return plain
    rank, width = norm.mlp.fc1.weight.shape
    ours = ROOMS["norm"].make("gated", rank=rank, eps=norm.norm.variance_epsilon).build(width, shift=False)
    ours = ours.to(norm.norm.weight.dtype)
    with torch.no_grad():
        for name, weight in (("weight", norm.norm), ("down", norm.mlp.fc1), ("up", norm.mlp.fc2)):
            getattr(ours, name).copy_(weight.weight)
    made: nn.Module = ours
    return made


class SmolLM3(ShippedClass):
    """`SmolLM3ForCausalLM`: the plain sum; every fourth layer without positions."""

    kind, architecture = "smollm3", "SmolLM3ForCausalLM"
    joint = ("position", "interleaved_rope")
    theirs = "attention (rotary in three of four layers), feed-forward branches, norms"
    note = "The joint is position by layer, as in `interleaved_rope`."


class Llama4(ShippedClass):
    """`Llama4ForCausalLM`: the plain sum; every fourth layer without positions."""

    kind, architecture = "llama4_text", "Llama4ForCausalLM"
    joint = ("position", "interleaved_rope")
    theirs = "attention (rotary in three of four layers, temperature by position in the fourth), experts, norms"
    note = "The joint is position by layer, as in `interleaved_rope`."

    def branches(self, layer: Any, index: int) -> Sequence[ShippedBranch]:
        return (
            ShippedBranch(body=layer.self_attn, role="attention", input_norm=layer.input_layernorm),
            ShippedBranch(
                body=layer.feed_forward,
                role="feedforward",
                input_norm=layer.post_attention_layernorm,
                call=lambda module, x, given: first(module(x)).view(x.shape),
            ),
        )


def _attend_by_index(module: Any, x: Any, given: LayerInputs) -> Tensor:
    """Attention whose choice of keys goes on to the next layer."""
    arguments = given.without("prev_topk_indices", "input_ids")
    output, _, given.passed_on["keys"] = module(
        hidden_states=x, prev_topk_indices=given.passed_on.get("keys"), **arguments
    )
    result: Tensor = output
    return result


class MistralLarge4(ShippedClass):
    """The language model of `MistralLarge4ForConditionalGeneration`: the plain sum; some layers without positions."""

    kind, architecture = "mistral_large4", "MistralLarge4ForConditionalGeneration"
    returns_more = True
    stack, text_config = "model.language_model", "text_config"
    joint = ("position", "interleaved_rope")
    theirs = "latent attention with an indexer and shared keys, experts, norms"
    note = "The joint is position by layer, as in `interleaved_rope`."
    unused_by_text = _TOWERS

    def branches(self, layer: Any, index: int) -> Sequence[ShippedBranch]:
        attention, feed_forward = super().branches(layer, index)
        return replace(attention, call=_attend_by_index), feed_forward


class _Unembedding(nn.Module):
    """The norm before NeoMME's head, and the projection to the narrower space of its table."""

    def __init__(self, norm: Any, projection: Any) -> None:
        super().__init__()
        self.norm, self.projection = norm, projection

    def forward(self, x: Tensor) -> Tensor:
        narrow: Tensor = self.norm(x) @ self.projection.weight
        return narrow


class NeoMME(ShippedClass):
    """`NeoMMEForMaskedLM`: attention reads a mixture of the stream and the embeddings."""

    kind, architecture, objective = "neomme", "NeoMMEForMaskedLM", "masked"
    withheld = ("initial_hidden_states",)
    joint = ("residual", "initial_state")
    theirs = "attention with value embeddings, norms, factorised embeddings and head"
    note = (
        "The mixture is read and not kept; with norms that have no gain only the quotient of its two numbers matters."
    )
    unused_by_text = (r"model\.patch_embeddings\..*", r"model\.image_.*")

    def residual(self, config: Any) -> Mapping[str, Any]:
        return {"kind": "initial_state", "alpha": config.residual_multiplier}

    def fill(self, residual: Any, stack: Any) -> Sequence[nn.Module | nn.Parameter]:
        lambdas = [layer.lambdas for layer in stack.layers]
        copy_rows(residual.mixture, lambdas)
        return lambdas

    def final_norm(self, theirs: Any, stack: Any) -> nn.Module:
        return _Unembedding(stack.final_norm, theirs.unembedding_projection)
