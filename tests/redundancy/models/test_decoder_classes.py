"""Transformers' causal language models: degrees of freedom derived by hand (notation: `derived`).

One layer, because no layer differs from another. Decoders of two layers: GPT-2 and Llama in test_seeds.py, and our presets."""

import pytest
from derived import D, Dofs, F, V, assert_derived, generic, tokens
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTJConfig,
    GPTJForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    StableLmConfig,
    StableLmForCausalLM,
)

pytestmark = [pytest.mark.compiled, pytest.mark.thorough]

L = 1

SIZES = {
    "vocab_size": V,
    "hidden_size": D,
    "num_hidden_layers": L,
    "num_attention_heads": 2,
    "intermediate_size": F,
    "max_position_embeddings": 16,
    "use_cache": False,
}

# One pre-norm layer of layer norms with a bias everywhere. n, m: the two norms' own biases.
#   W_q n + db_q = 0 (d), key free, W_o(W_v n + db_v) + db_o = c ones (d - 1), W_1 m + db_1 = 0 (f), db_2 = c ones (d - 1)
# of 7d + f moves: 4d + 2 are left.
PRE_NORM_LAYER = 4 * D + 2
HELD: Dofs = (D, 0, 0)


def test_gpt2():
    """L (4d + 2). In the fused bias (q, k, v): alone, k is free (d) and v along W_o^-1 ones (1); q is taken over by its
    norm. The last norm's bias shows in the logits, which have no bias of their own."""
    config = GPT2Config(
        vocab_size=V,
        n_embd=D,
        n_layer=L,
        n_head=2,
        n_inner=F,
        n_positions=16,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    rows = {
        "transformer.h.?.ln_1.bias": (D, 0, D),
        "transformer.h.?.attn.c_attn.bias": (3 * D, D + 1, 3 * D),
        "transformer.h.?.attn.c_proj.bias": (D, 1, D),
        "transformer.h.?.ln_2.bias": (D, 0, D),
        "transformer.h.?.mlp.c_fc.bias": (F, 0, D),
        "transformer.h.?.mlp.c_proj.bias": (D, 1, 1),
        "transformer.ln_f.bias": HELD,
    }
    assert_derived(generic(GPT2LMHeadModel(config)), {"input_ids": tokens()}, L * PRE_NORM_LAYER, rows)


def test_opt():
    """GPT-2 with four projections apart, ReLU, and positions offset by two: L (4d + 2)."""
    config = OPTConfig(
        vocab_size=V,
        hidden_size=D,
        word_embed_proj_dim=D,
        num_hidden_layers=L,
        num_attention_heads=2,
        ffn_dim=F,
        max_position_embeddings=16,
        use_cache=False,
    )
    layer = "model.decoder.layers.?."
    rows = {
        f"{layer}self_attn_layer_norm.bias": (D, 0, D),
        f"{layer}self_attn.q_proj.bias": (D, 0, D),
        f"{layer}self_attn.k_proj.bias": (D, D, D),
        f"{layer}self_attn.v_proj.bias": (D, 1, D),
        f"{layer}self_attn.out_proj.bias": (D, 1, D),
        f"{layer}final_layer_norm.bias": (D, 0, D),
        f"{layer}fc1.bias": (F, 0, D),
        f"{layer}fc2.bias": (D, 1, 1),
        "model.decoder.final_layer_norm.bias": HELD,
    }
    assert_derived(generic(OPTForCausalLM(config)), {"input_ids": tokens()}, L * PRE_NORM_LAYER, rows)


def test_bloom():
    """ALiBi adds to the scores and leaves the key free; q, k and v are interleaved per head, which changes no count.
    The norm on the embeddings opens a stream that the next norm reads: along ones its bias is free (1). L (4d + 2) +
    1."""
    hidden = 4 * D
    config = BloomConfig(
        vocab_size=V, hidden_size=D, n_layer=L, n_head=2, use_cache=False, bos_token_id=1, eos_token_id=2
    )
    rows = {
        "transformer.word_embeddings_layernorm.bias": (D, 1, 1),
        "transformer.h.?.input_layernorm.bias": (D, 0, D),
        "transformer.h.?.self_attention.query_key_value.bias": (3 * D, D + 1, 3 * D),
        "transformer.h.?.self_attention.dense.bias": (D, 1, D),
        "transformer.h.?.post_attention_layernorm.bias": (D, 0, D),
        "transformer.h.?.mlp.dense_h_to_4h.bias": (hidden, 0, D),
        "transformer.h.?.mlp.dense_4h_to_h.bias": (D, 1, 1),
        "transformer.ln_f.bias": HELD,
    }
    assert_derived(generic(BloomForCausalLM(config)), {"input_ids": tokens()}, L * PRE_NORM_LAYER + 1, rows)


def test_gpt_neox_rotates_a_part_and_joins_in_parallel():
    """Two norms read the same stream, and their branches join at once, so only the sum of both shifts must be c ones: d
    - 1 conditions, not twice. Half of each key head is rotated: W_k n + db_k = 0 there (r = d/2). Of n, q, k, v, o, m,
    1, 2 (7d + f): q d, k r, first matrix f, sum d - 1 go: 5d + 1 - r. In the fused bias: alone k's other d - r and v's
    1; the rotated keys move only with n, as q does."""
    rotated = D // 2
    config = GPTNeoXConfig(**SIZES, rotary_pct=0.5)
    rows = {
        "gpt_neox.layers.?.input_layernorm.bias": (D, 0, D),
        "gpt_neox.layers.?.post_attention_layernorm.bias": (D, 0, D),
        "gpt_neox.layers.?.attention.query_key_value.bias": (3 * D, D - rotated + 1, 3 * D - rotated),
        "gpt_neox.layers.?.attention.dense.bias": (D, 1, D),
        "gpt_neox.layers.?.mlp.dense_h_to_4h.bias": (F, 0, D),
        "gpt_neox.layers.?.mlp.dense_4h_to_h.bias": (D, 1, D),
        "gpt_neox.final_layer_norm.bias": HELD,
    }
    assert_derived(generic(GPTNeoXForCausalLM(config)), {"input_ids": tokens()}, L * (5 * D + 1 - rotated), rows)


def test_gptj_has_no_attention_biases():
    """One norm feeds both branches and no projection of the attention has a bias: W_q n = 0 holds n at 0. Of the
    feed-forward, the second bias moves along ones (1). The last norm and the vocabulary's bias share d. L + d."""
    config = GPTJConfig(
        vocab_size=V, n_embd=D, n_layer=L, n_head=2, n_inner=F, rotary_dim=2, n_positions=16, use_cache=False,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    rows = {
        "transformer.h.?.ln_1.bias": HELD,
        "transformer.h.?.mlp.fc_in.bias": (F, 0, 0),
        "transformer.h.?.mlp.fc_out.bias": (D, 1, 1),
        "transformer.ln_f.bias": (D, 0, D),
        "lm_head.bias": (V, 0, D),
    }
    assert_derived(generic(GPTJForCausalLM(config)), {"input_ids": tokens()}, L + D, rows)


def test_phi_feeds_both_branches_from_one_norm():
    """Of n, q, k, v, o, 1, 2 (6d + f): q d, rotated keys r = d/2, first matrix f, the sum of both branches d - 1 go: 4d
    + 1 - r. The vocabulary's bias takes over the last norm's (d). The key's bias: the d - r entries that are not
    rotated are free, the others move with n."""
    rotated = D // 2
    config = PhiConfig(**SIZES, partial_rotary_factor=0.5)
    layer = "model.layers.?."
    rows = {
        f"{layer}input_layernorm.bias": (D, 0, D),
        f"{layer}self_attn.q_proj.bias": (D, 0, D),
        f"{layer}self_attn.k_proj.bias": (D, D - rotated, D),
        f"{layer}self_attn.v_proj.bias": (D, 1, D),
        f"{layer}self_attn.dense.bias": (D, 1, D),
        f"{layer}mlp.fc1.bias": (F, 0, D),
        f"{layer}mlp.fc2.bias": (D, 1, D),
        "model.final_layernorm.bias": (D, 0, D),
        "lm_head.bias": (V, 0, D),
    }
    assert_derived(generic(PhiForCausalLM(config)), {"input_ids": tokens()}, L * (4 * D + 1 - rotated) + D, rows)


@pytest.mark.parametrize("alibi", [True, False], ids=["alibi", "rotary"])
def test_falcon_shares_one_key_head(alibi):
    """One norm for both branches, one key and value head (width e = d/2) for two query heads. Of n, q, k, v, o, 1, 2
    (4d + 2e + f): q d, rotated keys (e, or none with ALiBi), first matrix f, the sum of both branches d - 1 go. Alone,
    v moves only along what W_o makes of equal heads, and ones is not among it."""
    e = D // 2
    held = 0 if alibi else e
    config = FalconConfig(
        vocab_size=V, hidden_size=D, num_hidden_layers=L, num_attention_heads=2, ffn_hidden_size=F, bias=True, alibi=alibi,
        multi_query=True, parallel_attn=True, new_decoder_architecture=False, use_cache=False, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    rows = {
        "transformer.h.?.input_layernorm.bias": (D, 0, D),
        "transformer.h.?.self_attention.query_key_value.bias": (D + 2 * e, e - held, D + 2 * e),
        "transformer.h.?.self_attention.dense.bias": (D, 1, D),
        "transformer.h.?.mlp.dense_h_to_4h.bias": (F, 0, D),
        "transformer.h.?.mlp.dense_4h_to_h.bias": (D, 1, D),
        "transformer.ln_f.bias": HELD,
    }
    if not alibi:  # all of k moves with n, as q does: the two together have d directions, not d + e
        rows["transformer.h.?.self_attention.query_key_value.bias"] = (D + 2 * e, 0, D + e)
    model = generic(FalconForCausalLM(config))
    assert_derived(model, {"input_ids": tokens()}, L * (2 * D + 2 * e + 1 - held), rows)


def test_stablelm_has_biases_on_q_k_and_v_alone():
    """Layer norms; biases on q, k, v but not on o or the feed-forward. The feed-forward's gate reads m: W m = 0 holds
    it. Of n, q, k, v: q d, rotated keys r = d/2, and the branch's shift W_o t = c ones leaves t one direction: d + (d -
    r) + 1."""
    rotated = D // 2
    config = StableLmConfig(**SIZES, num_key_value_heads=2, use_qkv_bias=True, partial_rotary_factor=0.5)
    layer = "model.layers.?."
    rows = {
        f"{layer}input_layernorm.bias": (D, 0, D),
        f"{layer}self_attn.q_proj.bias": (D, 0, D),
        f"{layer}self_attn.k_proj.bias": (D, D - rotated, D),
        f"{layer}self_attn.v_proj.bias": (D, 1, D),
        f"{layer}post_attention_layernorm.bias": HELD,
        "model.norm.bias": HELD,
    }
    assert_derived(generic(StableLmForCausalLM(config)), {"input_ids": tokens()}, L * (2 * D - rotated + 1), rows)
