"""GPT-2: pre-norm layer norms, learned positions, biases everywhere, matrices with inputs on the first axis.

Source: `modeling_gpt2.py` of Transformers 5.23; https://github.com/openai/gpt-2.
"""

from collections.abc import Mapping
from typing import Any

from addnorm.outside.hugging_face.classes import (
    HAS_CLASS,
    OWN_TOKENIZER,
    CheckpointTensor,
    ConfigConstant,
    ConfigField,
    ForeignClass,
    Ignored,
    lines,
)
from addnorm.outside.hugging_face.forms import SAME, STACKED, Transposed, is_mask, is_number

_LAYER, _THEIR_LAYER = "layers.{}", "transformer.h.{}"
_BODY, _HIDDEN = f"{_LAYER}.attention.body", f"{_LAYER}.feedforward.body"


def _hidden(config: Mapping[str, Any]) -> int:
    width: int = config["n_embd"] if "n_embd" in config else config["hidden_size"]
    return 4 * width


class GPT2(ForeignClass):
    """`GPT2LMHeadModel`."""

    architecture = "GPT2LMHeadModel"
    fixed = {
        "objective": "causal",
        "norm.kind": "layer",
        "placement.kind": "pre",
        "position.kind": "learned",
        **{f"bias.{name}": True for name in ("q", "k", "v", "o", "up", "down", "norm")},
    }
    fields = (
        ConfigField(theirs="vocab_size", ours="vocab"),
        ConfigField(theirs="n_embd", ours="width", read=("hidden_size",)),
        ConfigField(theirs="n_layer", ours="depth", read=("num_hidden_layers",)),
        ConfigField(theirs="n_head", ours="heads", read=("num_attention_heads",)),
        ConfigField(theirs="n_inner", ours="hidden", default=_hidden),
        ConfigField(theirs="n_positions", ours="max_seq", default=1024, read=("max_position_embeddings",)),
        ConfigField(theirs="layer_norm_epsilon", ours="norm.eps", default=1e-5),
        ConfigField(
            theirs="activation_function",
            ours="activation",
            default="gelu_new",
            names={"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu"},
        ),
        ConfigField(theirs="tie_word_embeddings", ours="tied", default=True),
        ConfigField(theirs="attn_pdrop", ours="dropout.attention", default=0.1),
        ConfigField(theirs="resid_pdrop", ours="dropout.branch", default=0.1),
        ConfigField(theirs="embd_pdrop", ours="dropout.embedding", default=0.1),
        ConfigField(theirs="initializer_range", ours="init_std", default=0.02),
    )
    constants = (
        ConfigConstant(theirs="scale_attn_weights", values=(True,), default=True),
        ConfigConstant(theirs="scale_attn_by_inverse_layer_idx", values=(False,), default=False),
        ConfigConstant(theirs="add_cross_attention", values=(False,), default=False),
    )
    harmless = ("n_ctx", r"summary_\w+", "reorder_and_upcast_attn", "predict_special_tokens")
    weights = (
        *lines("transformer.wte", "embedding", "weight"),
        CheckpointTensor(theirs="transformer.wpe.weight", ours=("position.table",)),
        *lines(f"{_THEIR_LAYER}.ln_1", f"{_LAYER}.attention.input_norm", "weight", "bias"),
        CheckpointTensor(
            theirs=f"{_THEIR_LAYER}.attn.c_attn.weight",
            ours=tuple(f"{_BODY}.{name}.weight" for name in ("query", "key", "value")),
            form=Transposed(STACKED),
        ),
        CheckpointTensor(
            theirs=f"{_THEIR_LAYER}.attn.c_attn.bias",
            ours=(f"{_BODY}.qk_bias.q", f"{_BODY}.qk_bias.k", f"{_BODY}.value.bias"),
            form=STACKED,
        ),
        *lines(f"{_THEIR_LAYER}.attn.c_proj", f"{_BODY}.output", "weight", "bias", form=Transposed(SAME)),
        *lines(f"{_THEIR_LAYER}.ln_2", f"{_LAYER}.feedforward.input_norm", "weight", "bias"),
        *lines(f"{_THEIR_LAYER}.mlp.c_fc", f"{_HIDDEN}.up", "weight", "bias", form=Transposed(SAME)),
        *lines(f"{_THEIR_LAYER}.mlp.c_proj", f"{_HIDDEN}.down", "weight", "bias", form=Transposed(SAME)),
        *lines("transformer.ln_f", "final_norm", "weight", "bias"),
        *lines("lm_head", "head", "weight"),
    )
    optional_prefix = "transformer."
    ignored = (
        Ignored(pattern=r"transformer\.h\.\d+\.attn\.bias", expected="a causal mask", holds=is_mask),
        Ignored(pattern=r"transformer\.h\.\d+\.attn\.masked_bias", expected="one number", holds=is_number),
    )
    vllm = HAS_CLASS
    gguf = f"{OWN_TOKENIZER} It computes every GELU by the tanh approximation."
