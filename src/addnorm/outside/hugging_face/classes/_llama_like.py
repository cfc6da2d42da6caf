"""Lines that Llama and Qwen2 share: pre-norm RMS, rotary positions with pairs as halves, SwiGLU, grouped queries."""

from addnorm.outside.hugging_face.classes import (
    ROPE_TYPE,
    SIZES,
    CheckpointTensor,
    ConfigConstant,
    ConfigField,
    Ignored,
    lines,
)
from addnorm.outside.hugging_face.forms import HALVES, is_frequencies

FIXED = {
    "objective": "causal",
    "norm.kind": "rms",
    "placement.kind": "pre",
    "position.kind": "rope",
    "activation": "swiglu",
}

FIELDS = (
    *SIZES,
    ConfigField(theirs="num_key_value_heads", ours="kv_heads", default=lambda config: config["num_attention_heads"]),
    ConfigField(theirs="intermediate_size", ours="hidden"),
    ConfigField(theirs="rms_norm_eps", ours="norm.eps", default=1e-6),
    ConfigField(
        theirs="rope_theta",
        ours="position.theta",
        default=10_000.0,
        also=("rope_parameters.rope_theta",),
        read=("rope_scaling.rope_theta",),
    ),
    ConfigField(theirs="tie_word_embeddings", ours="tied", default=False),
    ConfigField(theirs="attention_dropout", ours="dropout.attention", default=0.0),
    ConfigField(theirs="initializer_range", ours="init_std", default=0.02),
)

CONSTANTS = (
    ConfigConstant(theirs="hidden_act", values=("silu", "swish"), default="silu"),
    ROPE_TYPE,
)

SWITCHES = (
    ConfigConstant(
        theirs="partial_rotary_factor",
        values=(1.0,),
        default=1.0,
        meaning="it rotates a share of each head",
        read=("rope_parameters.partial_rotary_factor", "rope_scaling.partial_rotary_factor"),
    ),
    ConfigConstant(theirs="rope_interleaved", values=(False,), default=False),
    ConfigConstant(theirs="use_mrope", values=(False,), default=False),
    ConfigConstant(theirs="layer_types", values=("full_attention", "attention"), default="full_attention"),
)

_LAYER, _THEIR_LAYER = "layers.{}", "model.layers.{}"
_BODY, _THEIR_BODY = f"{_LAYER}.attention.body", f"{_THEIR_LAYER}.self_attn"
_HIDDEN, _THEIR_HIDDEN = f"{_LAYER}.feedforward.body", f"{_THEIR_LAYER}.mlp"

WEIGHTS = (
    *lines("model.embed_tokens", "embedding", "weight"),
    *lines(f"{_THEIR_LAYER}.input_layernorm", f"{_LAYER}.attention.input_norm", "weight"),
    *lines(f"{_THEIR_BODY}.q_proj", f"{_BODY}.query", "weight", form=HALVES),
    *lines(f"{_THEIR_BODY}.k_proj", f"{_BODY}.key", "weight", form=HALVES),
    CheckpointTensor(theirs=f"{_THEIR_BODY}.q_proj.bias", ours=(f"{_BODY}.qk_bias.q",), form=HALVES),
    CheckpointTensor(theirs=f"{_THEIR_BODY}.k_proj.bias", ours=(f"{_BODY}.qk_bias.k",), form=HALVES),
    *lines(f"{_THEIR_BODY}.v_proj", f"{_BODY}.value", "weight", "bias"),
    *lines(f"{_THEIR_BODY}.o_proj", f"{_BODY}.output", "weight", "bias"),
    *lines(f"{_THEIR_LAYER}.post_attention_layernorm", f"{_LAYER}.feedforward.input_norm", "weight"),
    *lines(f"{_THEIR_HIDDEN}.gate_proj", f"{_HIDDEN}.gate", "weight", "bias"),
    *lines(f"{_THEIR_HIDDEN}.up_proj", f"{_HIDDEN}.up", "weight", "bias"),
    *lines(f"{_THEIR_HIDDEN}.down_proj", f"{_HIDDEN}.down", "weight", "bias"),
    *lines("model.norm", "final_norm", "weight"),
    *lines("lm_head", "head", "weight"),
)

IGNORED = (
    Ignored(
        pattern=r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
        expected="the frequencies of rope_theta, not scaled",
        holds=is_frequencies,
    ),
)
