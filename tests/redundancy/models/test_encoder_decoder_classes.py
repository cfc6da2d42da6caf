"""Transformers' models with an encoder and a decoder: degrees of freedom derived by hand (notation: `derived`)."""

import pytest
from derived import D, F, L, V, assert_derived, generic, noise, tokens
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

pytestmark = [pytest.mark.compiled, pytest.mark.thorough]

SIZES = {
    "vocab_size": V,
    "d_model": D,
    "encoder_layers": L,
    "decoder_layers": L,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": F,
    "decoder_ffn_dim": F,
    "use_cache": False,
}


def test_bart():
    """Post-norm. An encoder layer keeps 4d + 2, as BERT's, and the embedding norm d; the encoder's last norm is read by
    the cross attentions alone: their keys are free, and their values shift a branch that o takes over, so nothing holds
    it. A decoder layer has a third block: of 12d + f moves, self q d, norm d - 1, cross q d, norm d - 1, first matrix
    f, norm d - 1 go: 7d + 3. The embedding norm adds d, the last norm shows in the logits: - d. L (4d + 2) + d + L (7d
    + 3)."""
    config = BartConfig(**SIZES, max_position_embeddings=16, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    rows = {
        "model.encoder.layernorm_embedding.bias": (D, 0, D),
        "model.decoder.layernorm_embedding.bias": (D, 0, D),
        "model.*.self_attn.q_proj.bias": (D, 0, D),
        "model.*.self_attn.k_proj.bias": (D, D, D),
        "model.*.self_attn.v_proj.bias": (D, 1, D),
        "model.*.self_attn.out_proj.bias": (D, 1, D),
        "model.*.self_attn_layer_norm.bias": (D, 0, D),
        "model.decoder.layers.?.encoder_attn.q_proj.bias": (D, 0, D),
        "model.decoder.layers.?.encoder_attn.k_proj.bias": (D, D, D),
        "model.decoder.layers.?.encoder_attn.v_proj.bias": (D, 1, D),
        "model.decoder.layers.?.encoder_attn.out_proj.bias": (D, 1, D),
        "model.decoder.layers.?.encoder_attn_layer_norm.bias": (D, 0, D),
        "model.*.fc1.bias": (F, 0, D),
        "model.*.fc2.bias": (D, 1, D),
        "model.encoder.layers.?.final_layer_norm.bias": (D, 0, D),
        "model.decoder.layers.0.final_layer_norm.bias": (D, 0, D),
        "model.decoder.layers.1.final_layer_norm.bias": (D, 0, 0),
    }
    inputs = {"input_ids": tokens(), "decoder_input_ids": tokens(seed=3)}
    joint = L * (4 * D + 2) + D + L * (7 * D + 3)
    assert_derived(generic(BartForConditionalGeneration(config)), inputs, joint, rows)


def test_whisper_has_no_key_biases():
    """Pre-norm, no key biases. Encoder layer: of n, q, v, o, m, 1, 2 (6d + f): q d, branch d - 1, f, d - 1 go: 3d + 2.
    Its last norm is read by the cross attentions alone, whose keys forgive it and whose o takes over what comes through
    the values: d. Decoder layer: of 10d + f: self q d, branch d - 1, cross q d, branch d - 1, f, d - 1 go: 5d + 3.
    GELUs hold the convolutions' biases; the last norm shows in the logits. L (3d + 2) + d + L (5d + 3)."""
    config = WhisperConfig(
        **SIZES,
        num_mel_bins=4,
        max_source_positions=6,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    rows = {
        "model.encoder.conv?.bias": (D, 0, 0),
        "model.*.self_attn.q_proj.bias": (D, 0, D),
        "model.*.self_attn.v_proj.bias": (D, 1, D),
        "model.*.self_attn.out_proj.bias": (D, 1, D),
        "model.*.self_attn_layer_norm.bias": (D, 0, D),
        "model.decoder.layers.?.encoder_attn.q_proj.bias": (D, 0, D),
        "model.decoder.layers.?.encoder_attn.v_proj.bias": (D, 1, D),
        "model.decoder.layers.?.encoder_attn.out_proj.bias": (D, 1, D),
        "model.decoder.layers.?.encoder_attn_layer_norm.bias": (D, 0, D),
        "model.*.fc1.bias": (F, 0, D),
        "model.*.fc2.bias": (D, 1, 1),
        "model.*.layers.?.final_layer_norm.bias": (D, 0, D),
        "model.encoder.layer_norm.bias": (D, 0, D),
        "model.decoder.layer_norm.bias": (D, 0, 0),
    }
    inputs = {"input_features": noise(3, 4, 12), "decoder_input_ids": tokens()}
    joint = L * (3 * D + 2) + D + L * (5 * D + 3)
    assert_derived(generic(WhisperForConditionalGeneration(config)), inputs, joint, rows)
