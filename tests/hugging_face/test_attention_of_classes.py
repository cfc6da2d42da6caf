"""The attention that `addnorm inspect` measures in classes of Transformers is what multiplies values, or none is measured.

What classes return as attention weights is not used: with some it has a sink's column, is of blocks or of other heads, or comes
of a mask that was added as a number. The reference here is the effect of values: the derivative of what the output projection
reads with respect to what the value projection gives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from addnorm.insight.probe import probe
from addnorm.training.objective import Batch
from sampled import sampled

BATCH, SEQ, LAYERS, HEADS, DIM = 2, 10, 3, 4, 8
SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": DIM}
ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
GPT = {"vocab_size": 40, "n_embd": 32, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 64}
T5 = {"vocab_size": 40, "d_model": 32, "d_ff": 48, "num_layers": LAYERS, "num_heads": HEADS, "d_kv": DIM}
BART = {
    "vocab_size": 40,
    "d_model": 32,
    "encoder_layers": LAYERS,
    "decoder_layers": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "max_position_embeddings": 64,
}
PROPHET = {
    "vocab_size": 40,
    "hidden_size": 32,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "num_encoder_layers": LAYERS,
    "num_decoder_layers": LAYERS,
    "num_encoder_attention_heads": HEADS,
    "num_decoder_attention_heads": HEADS,
    "max_position_embeddings": 64,
}
SPARSE = {**GROUPED, "sliding_window": 4, "rope_parameters": ROPE}


@dataclass(frozen=True)
class Right:
    """A class whose attention is measured, and the modules that give its values and read what is attended."""

    settings: dict[str, Any]
    value: str
    output: str
    entry: Callable[[int], int] = lambda head: head // 2 * DIM
    """First value entry of a query head, in what the module gives."""
    dim: int = DIM
    """Entries of a head in what the output projection reads."""
    directions: bool = True


def each(head: int) -> int:
    return head * DIM


RIGHT: dict[str, Right] = {
    "LlamaForCausalLM": Right(GROUPED, "v_proj", "o_proj"),
    "GptOssForCausalLM": Right(SPARSE | {"num_local_experts": 2, "num_experts_per_tok": 1}, "v_proj", "o_proj"),
    "FlintForCausalLM": Right(
        GROUPED | {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}, "v_proj", "o_proj"
    ),
    "GraniteSWAForCausalLM": Right(SPARSE, "v_proj", "o_proj"),
    "Gemma2ForCausalLM": Right(
        SPARSE | {"attn_logit_softcapping": 0.5, "query_pre_attn_scalar": 8}, "v_proj", "o_proj"
    ),
    "MistralForCausalLM": Right(GROUPED | {"sliding_window": 4}, "v_proj", "o_proj"),
    "DogeForCausalLM": Right(GROUPED | {"keep_window_size": 4}, "v_proj", "o_proj"),
    "DeepseekV3ForCausalLM": Right(
        SIZES
        | {
            "num_key_value_heads": HEADS,
            "q_lora_rank": 8,
            "kv_lora_rank": 8,
            "qk_nope_head_dim": 6,
            "qk_rope_head_dim": 4,
            "v_head_dim": DIM,
            "first_k_dense_replace": LAYERS,
        },
        "kv_b_proj",
        "o_proj",
        entry=lambda head: head * (6 + DIM) + 6,
    ),
    "FalconForCausalLM": Right(SIZES, "query_key_value", "dense", entry=lambda head: (HEADS + 1) * DIM),
    "BloomForCausalLM": Right(
        {"vocab_size": 40, "hidden_size": 32, "n_layer": LAYERS, "n_head": HEADS},
        "query_key_value",
        "self_attention.dense",
        entry=lambda head: (3 * head + 2) * DIM,
    ),
    "GPTJForCausalLM": Right({**GPT, "rotary_dim": 4}, "v_proj", "out_proj", each),
    "OpenAIGPTLMHeadModel": Right(GPT, "c_attn", "attn.c_proj", entry=lambda head: 64 + head * DIM),
    "DebertaV2ForMaskedLM": Right(
        SIZES | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 8},
        "value_proj",
        "attention.output.dense",
        each,
        directions=False,
    ),
    "T5EncoderModel": Right(T5, "SelfAttention.v", "SelfAttention.o", each),
    # It returns scores as attention weights.
    "ProphetNetForConditionalGeneration": Right(PROPHET, "value_proj", "self_attn.out_proj", each),
    "RoFormerForMaskedLM": Right(SIZES, "self.value", "attention.output.dense", each),
    "ModernBertForMaskedLM": Right(
        SIZES | {"local_attention": 4, "global_attn_every_n_layers": 3},
        "Wqkv",
        "attn.Wo",
        entry=lambda head: 64 + head * DIM,
    ),
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "DiffLlamaForCausalLM": (GROUPED, "heads whose outputs are added to each other"),
    "BigBirdForMaskedLM": (SIZES | {"block_size": 4, "num_random_blocks": 1}, "got several"),
    "NystromformerForMaskedLM": (SIZES | {"num_landmarks": 5, "segment_means_seq_len": SEQ}, "got several"),
    "LongformerForMaskedLM": (SIZES | {"attention_window": 4}, "got neither"),
    "LEDForConditionalGeneration": (BART | {"attention_window": 4}, "of further positions"),
    "PegasusXForConditionalGeneration": (BART | {"block_size": 4, "num_global_tokens": 2}, "got several"),
    "LongT5EncoderModel": (T5 | {"local_radius": 2}, "got neither"),
    "ReformerModelWithLMHead": (
        {
            "vocab_size": 40,
            "hidden_size": 32,
            "feed_forward_size": 48,
            "num_attention_heads": 2,
            "attention_head_size": 16,
            "attn_layers": ["local", "lsh", "local"],
            "is_decoder": True,
            "axial_pos_embds": False,
            "max_position_embeddings": 80,
            "local_attn_chunk_length": 5,
            "lsh_attn_chunk_length": 5,
            "num_buckets": 2,
        },
        "got neither",
    ),
    "YosoForMaskedLM": (SIZES, "got neither"),
    "FNetForMaskedLM": (SIZES, "got neither"),
    "MambaForCausalLM": ({**SIZES}, "got neither"),
    "CpmAntForCausalLM": (SIZES | {"dim_head": DIM, "dim_ff": 48, "prompt_length": 4}, "of further positions"),
    "ProphetNetForCausalLM": (
        PROPHET,
        "of further positions",
    ),
    "DebertaForMaskedLM": (
        SIZES | {"relative_attention": True, "pos_att_type": ["c2p"], "talking_head": True},
        "got neither",
    ),
}
LENGTHS = {"BigBirdForMaskedLM": 64, "PegasusXForConditionalGeneration": 16, "LongformerForMaskedLM": 12}
"""Tokens of classes that take another attention for short texts, or fill texts up to a multiple of a block."""
ROUNDING = 2e-4
"""Of a mean of logarithms: softmaxes are in float32, over scores of a size of some ten."""


def made(name: str, settings: dict[str, Any]) -> Any:
    cls = getattr(transformers, name, None)
    if cls is None:
        pytest.skip(f"this version of Transformers has no {name}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = cls(cls.config_class(**settings)).eval()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.3)
            elif parameter.numel() == HEADS:  # sinks
                nn.init.normal_(parameter, std=1.0)
    return model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model


def measured(model: Any, seq: int = SEQ) -> tuple[dict[str, Any], Tensor]:
    ids = torch.randint(3, 40, (BATCH, seq), generator=torch.Generator().manual_seed(0))
    batch = Batch(inputs=ids, targets=ids, mask=None)
    return probe(model, [batch], [batch], lambda model, tokens: model(tokens) and None), ids


def rows_by_effect(model: Any, case: Right, ids: Tensor, layer: int) -> Tensor:
    """The effect of every value on every row, [batch, heads, query, key], divided by its sum."""
    values, outputs = (
        [module for path, module in model.named_modules() if path.endswith(name)] for name in (case.value, case.output)
    )
    seen: dict[str, Tensor] = {}

    def give(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        seen["value"] = output.detach().requires_grad_()
        return seen["value"]

    def read(module: nn.Module, args: Any) -> None:
        seen["read"] = args[0]

    handles = [values[layer].register_forward_hook(give), outputs[layer].register_forward_pre_hook(read)]
    try:
        model(ids)
    finally:
        for handle in handles:
            handle.remove()
    rows = torch.zeros(BATCH, HEADS, SEQ, SEQ, dtype=torch.float64)
    of_read = seen["read"].reshape(BATCH, SEQ, -1)
    for head in range(HEADS):
        for query in range(SEQ):
            one = of_read[:, query, head * case.dim].sum()
            (effect,) = torch.autograd.grad(one, seen["value"], retain_graph=True)
            rows[:, head, query] = effect.reshape(BATCH, SEQ, -1)[..., case.entry(head)].double()
    return rows / rows.sum(-1, keepdim=True)


@pytest.mark.parametrize("name", sampled(5, RIGHT))
def test_measures_are_those_of_the_effect_of_values(name: str) -> None:
    case = RIGHT[name]
    model = made(name, case.settings)
    result, ids = measured(model)
    expected_reasons = [] if case.directions else ["queries and keys"]
    reasons = [sentence for sentence in result["missing"] if not sentence.startswith(("logits", "branches"))]
    assert [reason[:16] for reason in reasons] == expected_reasons
    for layer in range(LAYERS):
        rows = rows_by_effect(model, case, ids, layer)
        several = (rows > 0).sum(-1) > 1
        entropy = -torch.special.xlogy(rows, rows).sum(-1)[several]
        row = result["layers"][layer]
        assert row["entropy"] == pytest.approx(entropy.mean().item(), rel=ROUNDING)
        assert row["first_share"] == pytest.approx(rows[..., 0][several].mean().item(), rel=ROUNDING)
        assert row["one_hot"] == pytest.approx((rows.amax(-1)[several] > 0.9).double().mean().item(), abs=1e-12)
        assert row["entropy_share"] == pytest.approx(
            (entropy / (rows > 0).sum(-1)[several].double().log()).mean().item(), rel=ROUNDING
        )
        assert ("query_direction" in row) == case.directions


@pytest.mark.parametrize("name", sampled(5, REFUSED))
def test_other_attention_has_no_number_and_a_reason(name: str) -> None:
    settings, reason = REFUSED[name]
    result, _ = measured(made(name, settings), LENGTHS.get(name, SEQ))
    for row in result["layers"]:
        assert not {"entropy", "entropy_share", "one_hot", "first_share", "similarity", "query_direction"} & row.keys()
    assert result["attention"] == []
    (sentence,) = [sentence for sentence in map(str, result["missing"]) if sentence.startswith("attention of layers")]
    assert reason in sentence
    assert "0, 1, 2" in sentence
