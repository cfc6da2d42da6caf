"""Tables of the Gemmas: sandwich norms, inputs of every layer beside the stream, several streams in one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from addnorm.outside.hugging_face.shipped import ShippedBranch, ShippedClass, copy_rows
from addnorm.outside.hugging_face.shipped.one_stream import _in_sandwich


class _PerLayerTable(nn.Module):
    """Addition of a layer of Gemma to the stream from its own slice of a table of tokens, without its norm."""

    def __init__(self, parts: Any) -> None:
        super().__init__()
        self.gate, self.projection, self.activation = (
            parts.per_layer_input_gate,
            parts.per_layer_projection,
            parts.act_fn,
        )

    def forward(self, x: Tensor, entries: Tensor) -> Tensor:
        added: Tensor = self.projection(self.activation(self.gate(x)) * entries)
        return added


def _with_table(layer: Any, parts: Any = None) -> tuple[ShippedBranch, ...]:
    """Branches in a sandwich, and the table's as a third one if the layer has a table.

    Args:
        layer: of Gemma.
        parts: module of the layer that has the table's parts; None for the layer itself.
    """
    parts = layer if parts is None else parts
    if not parts.hidden_size_per_layer_input:
        return _in_sandwich(layer)
    table = ShippedBranch(
        body=_PerLayerTable(parts),
        role="feedforward",
        output_norm=parts.post_per_layer_input_norm,
        call=lambda module, x, given: module(x, given.arguments["per_layer_input"]),
    )
    return *_in_sandwich(layer), table


class _Experts(nn.Module):
    """Gemma 4's feed-forward branch: a dense part, and experts that read the stream with norms of their own."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.input, self.mlp, self.router, self.experts = (
            layer.pre_feedforward_layernorm,
            layer.mlp,
            layer.router,
            layer.experts,
        )
        self.after_mlp, self.before_experts, self.after_experts = (
            layer.post_feedforward_layernorm_1,
            layer.pre_feedforward_layernorm_2,
            layer.post_feedforward_layernorm_2,
        )

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        _, weights, chosen = self.router(flat)
        sparse = self.experts(self.before_experts(flat), chosen, weights).reshape(x.shape)
        both: Tensor = self.after_mlp(self.mlp(self.input(x))) + self.after_experts(sparse)
        return both


def _fill_layer_factors(residual: Any, stack: Any) -> None:
    """Fill an affine residual with the factors by which layers multiply the stream behind them."""
    for index, layer in enumerate(stack.layers):
        last = (index + 1) * (len(residual.sites) // len(stack.layers)) - 1
        for name in ("stream_scale", "output_scale"):
            getattr(residual, name)[last].fill_(layer.layer_scalar.item())
    residual.requires_grad_(False)


class Gemma4(ShippedClass):
    """`Gemma4ForCausalLM`: tables of tokens per layer as a third branch, and a fixed factor of the stream after each layer."""

    kind, architecture, placement = "gemma4_text", "Gemma4ForCausalLM", "sandwich"
    joint = ("residual", "affine")
    withheld = ("per_layer_input",)
    theirs = "attention with shared keys and a value norm, experts, norms, tables of tokens per layer"
    note = "The factor of a layer is a buffer; under norms it only weighs later layers against earlier ones."

    def fill(self, residual: Any, stack: Any) -> Sequence[nn.Module | nn.Parameter]:
        _fill_layer_factors(residual, stack)
        return ()

    def branches(self, layer: Any, index: int) -> Sequence[ShippedBranch]:
        attention, feed_forward, *table = _with_table(layer)
        if layer.enable_moe_block:
            feed_forward = replace(feed_forward, body=_Experts(layer), input_norm=None)
        return attention, feed_forward, *table


class EmbeddingGemma2(ShippedClass):
    """The language model of `EmbeddingGemma2Model`: as Gemma 4, with embeddings in the place of logits."""

    kind, architecture, placement, objective = "embedding_gemma2", "EmbeddingGemma2Model", "sandwich", "masked"
    stack, text_config = "language_model", "text_config"
    joint = ("residual", "affine")
    withheld = ("per_layer_input",)
    theirs = "attention with a value norm, feed-forward branches, norms, inputs per layer from the embeddings"
    note = "The class has no logits: the model returns its embedding of every token."
    unused_by_text = (r"(vision_tower|embed_vision|audio_tower|embed_audio)\..*",)

    def fill(self, residual: Any, stack: Any) -> Sequence[nn.Module | nn.Parameter]:
        _fill_layer_factors(residual, stack)
        return ()

    def branches(self, layer: Any, index: int) -> Sequence[ShippedBranch]:
        return _with_table(layer, layer.ple_block)

    def head(self, theirs: Any, stack: Any) -> Any:
        return stack.embedding_projection


class Gemma3n(ShippedClass):
    """`Gemma3nForCausalLM`: alternating updates with LAuReL, and tables of tokens per layer as a third branch."""

    kind, architecture, placement = "gemma3n_text", "Gemma3nForCausalLM", "sandwich"
    joint = ("residual", "altup")
    withheld = ("per_layer_input",)
    theirs = (
        "attention with shared keys and a value norm, sparse feed-forward branches, norms, tables of tokens per layer"
    )
    note = (
        "The tables' branch writes to the streams that no layer computes on. In training the class clips coefficients."
    )
    close = "altup_unembed_projections"
    entered = "altup_projections"

    def norm(self, config: Any) -> Mapping[str, Any]:
        return {"kind": "rms", "eps": config.rms_norm_eps}

    def residual(self, config: Any) -> Mapping[str, Any]:
        return {
            "kind": "altup",
            "streams": config.altup_num_inputs,
            "active": config.altup_active_idx,
            "rank": config.laurel_rank,
            "late": 1,
        }

    def fill(self, residual: Any, stack: Any) -> Sequence[nn.Module | nn.Parameter]:
        for ours, projections in (
            (residual.entry, stack.altup_projections),
            (residual.exit, stack.altup_unembed_projections),
        ):
            copy_rows(ours, [projection.weight for projection in projections])
        updates, paths = [layer.altup for layer in stack.layers], [layer.laurel for layer in stack.layers]
        copy_rows(residual.router, [update.modality_router.weight for update in updates])
        copy_rows(residual.prediction, [update.prediction_coefs.weight for update in updates])
        copy_rows(residual.correction, [update.correction_coefs.weight for update in updates])
        copy_rows(residual.down, [path.linear_left.weight for path in paths])
        copy_rows(residual.up, [path.linear_right.weight for path in paths])
        if stack.config.altup_correct_scale:
            copy_rows(residual.late_scale, [update.correct_output_scale for update in updates])
        else:
            residual.late_scale.fill_(1).requires_grad_(False)
        for index, layer in enumerate(stack.layers):
            residual.router_norms[index].weight.copy_(layer.altup.router_norm.weight)
            residual.path_norms[index].weight.copy_(layer.laurel.post_laurel_norm.weight)
            # The branch's own gain: one parameter, so that its gradient is that of both uses.
            residual.input_norms[index].weight = layer.input_layernorm.weight
        return [*updates, *paths, stack.altup_projections, stack.altup_unembed_projections]

    def entry(self, hidden: Tensor, config: Any) -> Tensor:
        return hidden[0]

    def branches(self, layer: Any, index: int) -> Sequence[ShippedBranch]:
        return _with_table(layer)
