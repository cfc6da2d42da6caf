"""Tables of classes with several streams, or with a history of streams."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.outside.hugging_face.shipped import (
    LayerInputs,
    ShippedBranch,
    ShippedClass,
    copy_rows,
    first,
    transform,
)
from addnorm.outside.hugging_face.shipped.one_stream import _attend_by_index
from addnorm.residual import separate


class Qwen4Exp(ShippedClass):
    """`Qwen4ExpForCausalLM`: gated streams."""

    kind, architecture, placement = "qwen4_exp_text", "Qwen4ExpForCausalLM", "none"
    joint = ("residual", "gated_streams")
    theirs = "attention with an indexer, gated delta networks, experts, tables of hashed n-grams"
    note = "The norm is inside the read, so that branches have none of their own. Tables of n-grams read and write all streams."
    close = "hyper_connection_mixer"
    withheld = ("conv_mask", "ple_input_ids")

    def residual(self, config: Any) -> Mapping[str, Any]:
        return {
            "kind": "gated_streams",
            "streams": config.hc_count,
            "rank": config.hc_lowrank,
            "eps": config.rms_norm_eps,
        }

    def fill(self, residual: Any, stack: Any) -> Sequence[nn.Module | nn.Parameter]:
        reads = [read for layer in stack.layers for read in (layer.attn_hyper_connection, layer.mlp_hyper_connection)]
        copy_rows(residual.inject, [read.block_inject_weight.weight for read in reads])
        reads.append(stack.hyper_connection_mixer)
        copy_rows(residual.gain, [1 + read.hc_norm.weight.view(residual.gain.shape[1:]) for read in reads])
        copy_rows(residual.down, [read.input_mix_weight_down.weight for read in reads])
        copy_rows(residual.up, [read.input_mix_weight_up.weight for read in reads])
        return reads

    def entry(self, hidden: Tensor, config: Any) -> Tensor:
        return hidden[..., : config.hidden_size]

    def branches(self, layer: Any, index: int) -> Sequence[ShippedBranch]:
        if layer.layer_type == "linear_attention":
            attention = ShippedBranch(body=layer.linear_attn, role="attention", call=_linear)
        else:
            attention = ShippedBranch(body=layer.self_attn, role="attention")
        branches = attention, ShippedBranch(body=layer.mlp, role="feedforward")
        return (
            branches if layer.ple is None else (ShippedBranch(body=layer.ple, role="tables", call=_tables), *branches)
        )

    def final_norm(self, theirs: Any, stack: Any) -> nn.Module:
        return nn.Identity()


def _tables(module: Any, x: Any, given: LayerInputs) -> Tensor:
    arguments = given.arguments
    added: Tensor = module(
        x.flatten(-2),
        arguments["ple_input_ids"],
        arguments.get("past_key_values"),
        conv_mask=arguments.get("conv_mask"),
    )
    return added.view_as(x)


def _linear(module: Any, x: Any, given: LayerInputs) -> Tensor:
    arguments = given.arguments
    mask = arguments.get("conv_mask", arguments.get("attention_mask"))
    return first(module(x, cache_params=arguments.get("past_key_values"), attention_mask=mask))


class HyperConnected(ShippedClass):
    """Base of the tables of hyper-connections in DeepSeek's form."""

    close = "hc_head"
    mixing = "sinkhorn"

    def residual(self, config: Any) -> Mapping[str, Any]:
        return {
            "kind": "hyper_connections",
            "streams": config.hc_mult,
            "mixing": self.mixing,
            "eps": config.hc_eps,
            "norm_eps": config.rms_norm_eps,
            **self.further(config),
        }

    def further(self, config: Any) -> Mapping[str, Any]:
        """Fields in which classes differ."""
        return {"rounds": config.hc_sinkhorn_iters}

    def fill(self, residual: Any, stack: Any) -> Sequence[nn.Module | nn.Parameter]:
        reads = [read for layer in stack.layers for read in (layer.attn_hc, layer.ffn_hc)]
        copy_rows(residual.offset, [_targets_first(read.base, residual.streams) for read in reads])
        copy_rows(residual.weight, [_targets_first(read.fn, residual.streams) for read in reads])
        for row, read in enumerate(reads):
            residual.factor[row, : len(read.scale)] = read.scale
        head = getattr(stack, self.close)
        if residual.learned:
            residual.close_weight.copy_(head.hc_fn)
            residual.close_offset.copy_(head.hc_base)
            residual.close_factor.copy_(head.hc_scale)
        return [*reads, head]

    def entry(self, hidden: Tensor, config: Any) -> Tensor:
        return hidden[..., 0, :]


def _targets_first(rows: Tensor, streams: int) -> Tensor:
    """The rows of read, write and matrix, whose entry (source, target) becomes (target, source)."""
    reads, matrix = rows[: 2 * streams], rows[2 * streams :]
    if not len(matrix):
        return rows
    return torch.cat((reads, matrix.unflatten(0, (streams, streams)).transpose(0, 1).flatten(0, 1)))


class DeepseekV4(HyperConnected):
    """`DeepseekV4ForCausalLM`: hyper-connections with balanced mixing."""

    kind, architecture = "deepseek_v4", "DeepseekV4ForCausalLM"
    withheld = ("input_ids",)
    joint = ("residual", "hyper_connections")
    theirs = "attention over compressed keys, experts (some by a hash of the token), norms"
    note = "The class has sources first in its matrices and applies them transposed."

    def branches(self, layer: Any, index: int) -> Sequence[ShippedBranch]:
        attention, experts = super().branches(layer, index)
        return attention, replace(
            experts, call=lambda module, x, given: module(x, input_ids=given.arguments["input_ids"])
        )


class Glm5Next(HyperConnected):
    """The language model of `Glm5NextForConditionalGeneration`: hyper-connections with balanced mixing, closed by the mean."""

    kind, architecture = "glm5_next", "Glm5NextForConditionalGeneration"
    returns_more = True
    stack, text_config = "model.language_model", "text_config"
    joint = ("residual", "hyper_connections")
    theirs = "attention with an indexer, linear attention, experts, norms"
    note = "As DeepSeek-V4, but the streams are closed by their mean."
    unused_by_text = (r"model\.visual\..*",)

    def further(self, config: Any) -> Mapping[str, Any]:
        return {"rounds": config.hc_sinkhorn_iters, "close": "mean"}

    def branches(self, layer: Any, index: int) -> Sequence[ShippedBranch]:
        attention, feed_forward = super().branches(layer, index)
        is_linear = layer.block_type == "linear_attention"
        return replace(attention, call=_linear if is_linear else _attend_by_index), feed_forward


class HYV4(HyperConnected):
    """`HYV4ForCausalLM`: hyper-connections whose streams do not mix."""

    kind, architecture = "hy_v4", "HYV4ForCausalLM"
    returns_more = True
    joint = ("residual", "hyper_connections")
    theirs = "attention with an indexer, experts, norms"
    note = "eps makes weights of a read exceed 1, and keeps every stream written."
    mixing = "identity"

    def further(self, config: Any) -> Mapping[str, Any]:
        return {"write_eps": config.hc_eps, "magnitude": config.hc_magnitude}

    def branches(self, layer: Any, index: int) -> Sequence[ShippedBranch]:
        attention, feed_forward = super().branches(layer, index)
        return replace(attention, call=_attend_by_index), feed_forward


class _Convolved(nn.Module):
    """A branch of Inkling 2 with the convolution behind it, and norms of its own for queries, keys and values."""

    def __init__(self, body: Any, convolution: Any, norms: Sequence[Any] = ()) -> None:
        super().__init__()
        self.body, self.convolution, self.norms = body, convolution, nn.ModuleList(norms)

    def forward(self, x: Any, arguments: Mapping[str, Any]) -> Tensor:
        if not self.norms:
            output = first(self.body(x, **arguments))
        else:
            query, key, value = (norm(one) for norm, one in zip(self.norms, separate(x), strict=True))
            output = first(self.body(query, key_hidden_states=key, value_hidden_states=value, **arguments))
        return self.convolve(output, arguments)

    def convolve(self, output: Tensor, arguments: Mapping[str, Any]) -> Tensor:
        convolved: Tensor = self.convolution(
            output, past_key_values=arguments.get("past_key_values"), conv_mask=arguments.get("conv_mask")
        )
        return convolved


def _convolved(module: Any, x: Any, given: LayerInputs) -> Tensor:
    result: Tensor = module(x, given.without("block_states"))
    return result


def _convolved_experts(module: Any, x: Any, given: LayerInputs) -> Tensor:
    result: Tensor = module.convolve(transform(module.body, x, given), given.arguments)
    return result


class Inkling2(ShippedClass):
    """`Inkling2ForCausalLM`: block attention over normed sums of layers."""

    kind, architecture = "inkling2_text", "Inkling2ForCausalLM"
    joint = ("residual", "block_attention")
    theirs = "attention (clips, relative bank, sinks by query, convolutions), experts, norms, normed embeddings"
    note = "Blocks count layers. With all queries at zero it is not the plain model: values are normed."
    close = "final_input"

    def residual(self, config: Any) -> Mapping[str, Any]:
        return {
            "kind": "block_attention",
            "block": config.n_layers_per_attn_res_block,
            "separate": tuple(kind != "hybrid_sliding" for kind in config.layer_types),
        }

    def fill(self, residual: Any, stack: Any) -> Sequence[nn.Module | nn.Parameter]:
        taken = []
        for index, layer in enumerate(stack.layers):
            if layer.attention_input is not None:
                residual.query[residual.rows[2 * index]] = layer.attention_input.query.view(
                    -1, residual.query.shape[-1]
                )
                taken.append(layer.attention_input)
            residual.query[2 * index + 1] = layer.mlp_input.query
            taken.append(layer.mlp_input)
        residual.query[residual.close_row] = stack.final_input.query
        return [*taken, stack.final_input]

    def branches(self, layer: Any, index: int) -> Sequence[ShippedBranch]:
        if hasattr(layer, "input_layernorm"):
            norms, own = [], layer.input_layernorm
        else:
            norms, own = [layer.q_input_layernorm, layer.k_input_layernorm, layer.v_input_layernorm], None
        return (
            ShippedBranch(
                body=_Convolved(layer.self_attn, layer.post_attention_convolution, norms),
                role="attention",
                input_norm=own,
                call=_convolved,
            ),
            ShippedBranch(
                body=_Convolved(layer.mlp, layer.post_mlp_convolution),
                role="feedforward",
                input_norm=layer.post_attention_layernorm,
                call=_convolved_experts,
            ),
        )

    def logits(self, logits: Tensor, config: Any) -> Tensor:
        return super().logits(logits, config)[..., : config.unpadded_vocab_size]
