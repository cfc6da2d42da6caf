"""GPT-NeoX, parallel or sequential: pre-norm layer norms, rotary positions on a share of each head, q, k and v by head.

Source: `modeling_gpt_neox.py` of Transformers 5.23; Black et al. 2022, arXiv:2204.06745.
Differs from the source: nothing.
"""

from addnorm.outside.hugging_face.classes import (
    HAS_CLASS,
    OWN_TOKENIZER,
    ROPE_TYPE,
    SIZES,
    CheckpointTensor,
    ConfigField,
    ForeignClass,
    Ignored,
    lines,
)
from addnorm.outside.hugging_face.forms import StackedByHead, is_frequencies, is_mask, is_number

_LAYER, _THEIR_LAYER = "layers.{}", "gpt_neox.layers.{}"
_BODY, _HIDDEN = f"{_LAYER}.attention.body", f"{_LAYER}.feedforward.body"


class GPTNeoX(ForeignClass):
    """`GPTNeoXForCausalLM`."""

    architecture = "GPTNeoXForCausalLM"
    fixed = {
        "objective": "causal",
        "norm.kind": "layer",
        "placement.kind": "pre",
        "position.kind": "rope",
        **{f"bias.{name}": True for name in ("up", "down", "norm")},
    }
    fields = (
        *SIZES,
        ConfigField(theirs="intermediate_size", ours="hidden"),
        ConfigField(theirs="max_position_embeddings", ours="max_seq", default=2048),
        ConfigField(theirs="layer_norm_eps", ours="norm.eps", default=1e-5),
        ConfigField(
            theirs="hidden_act",
            ours="activation",
            default="gelu",
            names={
                "gelu": "gelu",
                "gelu_new": "gelu_tanh",
                "gelu_fast": "gelu_tanh",
                "gelu_pytorch_tanh": "gelu_tanh",
                "relu": "relu",
            },
        ),
        ConfigField(
            theirs="rotary_emb_base",
            ours="position.theta",
            default=10_000.0,
            also=("rope_parameters.rope_theta",),
            read=("rope_scaling.rope_theta",),
            echoes=("rope_theta",),
        ),
        ConfigField(
            theirs="rotary_pct",
            ours="position.fraction",
            default=0.25,
            also=("rope_parameters.partial_rotary_factor",),
            read=("rope_scaling.partial_rotary_factor",),
            echoes=("partial_rotary_factor",),
        ),
        *(ConfigField(theirs="attention_bias", ours=f"bias.{name}", default=True) for name in ("q", "k", "v", "o")),
        ConfigField(
            theirs="use_parallel_residual",
            ours="block.kind",
            default=True,
            names={True: "parallel", False: "sequential"},
        ),
        ConfigField(theirs="tie_word_embeddings", ours="tied", default=False),
        ConfigField(theirs="attention_dropout", ours="dropout.attention", default=0.0),
        ConfigField(theirs="hidden_dropout", ours="dropout.branch", default=0.0),
        ConfigField(theirs="hidden_dropout", ours="dropout.embedding", default=0.0),
        ConfigField(theirs="initializer_range", ours="init_std", default=0.02),
    )
    constants = (ROPE_TYPE,)
    harmless = (
        "attention_probs_dropout_prob",
        "hidden_dropout_prob",
    )  # names of the first release, which nothing reads
    weights = (
        *lines("gpt_neox.embed_in", "embedding", "weight"),
        *lines(f"{_THEIR_LAYER}.input_layernorm", f"{_LAYER}.attention.input_norm", "weight", "bias"),
        CheckpointTensor(
            theirs=f"{_THEIR_LAYER}.attention.query_key_value.weight",
            ours=tuple(f"{_BODY}.{name}.weight" for name in ("query", "key", "value")),
            form=StackedByHead(),
        ),
        CheckpointTensor(
            theirs=f"{_THEIR_LAYER}.attention.query_key_value.bias",
            ours=(f"{_BODY}.qk_bias.q", f"{_BODY}.qk_bias.k", f"{_BODY}.value.bias"),
            form=StackedByHead(),
        ),
        *lines(f"{_THEIR_LAYER}.attention.dense", f"{_BODY}.output", "weight", "bias"),
        *lines(f"{_THEIR_LAYER}.post_attention_layernorm", f"{_LAYER}.feedforward.input_norm", "weight", "bias"),
        *lines(f"{_THEIR_LAYER}.mlp.dense_h_to_4h", f"{_HIDDEN}.up", "weight", "bias"),
        *lines(f"{_THEIR_LAYER}.mlp.dense_4h_to_h", f"{_HIDDEN}.down", "weight", "bias"),
        *lines("gpt_neox.final_layer_norm", "final_norm", "weight", "bias"),
        *lines("embed_out", "head", "weight"),
    )
    ignored = (
        Ignored(pattern=r"gpt_neox\.layers\.\d+\.attention\.bias", expected="a causal mask", holds=is_mask),
        Ignored(pattern=r"gpt_neox\.layers\.\d+\.attention\.masked_bias", expected="one number", holds=is_number),
        Ignored(
            pattern=r"gpt_neox\.(layers\.\d+\.attention\.)?rotary_emb\.inv_freq",
            expected="the frequencies of rotary_emb_base, not scaled",
            holds=is_frequencies,
        ),
    )
    vllm = HAS_CLASS
    gguf = f"{OWN_TOKENIZER} It computes every GELU by the tanh approximation."
