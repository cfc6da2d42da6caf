"""Transformers' models with RMS norms, which forgive no shift: degrees of freedom derived by hand (notation:
`derived`). One layer, because no layer differs from another; T5's layers share a table."""

import pytest
from derived import D, F, V, assert_derived, generic, tokens
from transformers import (
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

pytestmark = [pytest.mark.compiled, pytest.mark.thorough]

L = 1
E = D // 2
SIZES = {
    "vocab_size": V,
    "hidden_size": D,
    "num_hidden_layers": L,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": F,
    "max_position_embeddings": 16,
    "use_cache": False,
}


def test_qwen2_wastes_nothing():
    """Rotary keys hold k; no norm has a bias that would move q; v's shift W_o (t, t) would reach an RMS norm, so t =
    0."""
    layer = "model.layers.?.self_attn."
    rows = {
        f"{layer}q_proj.bias": (D, 0, 0),
        f"{layer}k_proj.bias": (E, 0, 0),
        f"{layer}v_proj.bias": (E, 0, 0),
    }
    assert_derived(generic(Qwen2ForCausalLM(Qwen2Config(**SIZES))), {"input_ids": tokens()}, 0, rows)


def test_qwen3_has_more_values_than_width():
    """q and k are normed after their biases, and rotated, which holds both. Two value heads of 6 make 12 > d = 8
    entries: W_o does not see 4 directions of t, and o's bias takes over the other 8: W_o t + db_o = 0."""
    heads, head_dim = 2, 6
    values = heads * head_dim
    config = Qwen3Config(**{**SIZES, "num_key_value_heads": heads}, head_dim=head_dim, attention_bias=True)
    layer = "model.layers.?.self_attn."
    rows = {
        f"{layer}q_proj.bias": (values, 0, 0),
        f"{layer}k_proj.bias": (values, 0, 0),
        f"{layer}v_proj.bias": (values, values - D, values),
        f"{layer}o_proj.bias": (D, 0, D),
    }
    assert_derived(generic(Qwen3ForCausalLM(config)), {"input_ids": tokens()}, L * values, rows)


def test_llama_with_biases_everywhere():
    """v folds into o (e directions per layer, one value head for two query heads); SiLU holds the gate's bias, the
    gate's product the other's, an RMS norm the last one's."""
    config = LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True)
    layer = "model.layers.?."
    rows = {
        f"{layer}self_attn.q_proj.bias": (D, 0, 0),
        f"{layer}self_attn.k_proj.bias": (E, 0, 0),
        f"{layer}self_attn.v_proj.bias": (E, 0, E),
        f"{layer}self_attn.o_proj.bias": (D, 0, E),
        f"{layer}mlp.gate_proj.bias": (F, 0, 0),
        f"{layer}mlp.up_proj.bias": (F, 0, 0),
        f"{layer}mlp.down_proj.bias": (D, 0, 0),
    }
    assert_derived(generic(LlamaForCausalLM(config)), {"input_ids": tokens()}, L * E, rows)


def test_gpt_oss_has_sinks_and_routed_experts():
    """A sink takes a share of each row, so rows no longer sum to one and v's shift depends on the data: held, and o with it.
    The router chooses its experts by their order and weighs them by a softmax over the chosen: along ones its bias is free
    (1 per layer). The experts' own biases are looked up by the router's choice, so they are not among what is only added."""
    experts = 3
    config = GptOssConfig(
        **SIZES,
        head_dim=E,
        num_local_experts=experts,
        num_experts_per_tok=2,
        layer_types=["full_attention"] * L,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    layer = "model.layers.?."
    rows = {
        f"{layer}self_attn.q_proj.bias": (D, 0, 0),
        f"{layer}self_attn.k_proj.bias": (E, 0, 0),
        f"{layer}self_attn.v_proj.bias": (E, 0, 0),
        f"{layer}self_attn.o_proj.bias": (D, 0, 0),
        f"{layer}mlp.router.bias": (experts, 1, 1),
    }
    assert_derived(generic(GptOssForCausalLM(config)), {"input_ids": tokens()}, L, rows)


def test_t5_has_tables_and_no_biases():
    """A table of b = 4 buckets per head is added to the scores of each stack. The softmax forgives the same number on
    all of a head's buckets: h = 2 per stack. The encoder splits its buckets by sign, and the first one of the later
    half would be a distance of zero to the right, which does not exist: its h entries are never read, at any length. So
    2h + h free directions there are; but what no input of some lengths reads, others might, so the audit gives the h
    entries no freedom of their own: too careful by h, and both methods count 2h."""
    heads, buckets = 2, 4
    config = T5Config(
        vocab_size=V,
        d_model=D,
        d_kv=4,
        d_ff=F,
        num_layers=2,
        num_heads=heads,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=4,
        use_cache=False,
        tie_word_embeddings=False,
    )
    name = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    rows = {
        f"encoder.{name}": (heads * buckets, heads, heads),
        f"decoder.{name}": (heads * buckets, heads, heads),
    }
    inputs = {"input_ids": tokens(), "decoder_input_ids": tokens(seed=3)}
    model = generic(T5ForConditionalGeneration(config))
    assert_derived(model, inputs, 2 * heads, rows, track=r"relative_attention_bias")
