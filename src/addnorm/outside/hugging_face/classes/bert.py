"""BERT: masked, post-norm with a norm on the embeddings, learned positions, token types, a transform before the output.

Source: `modeling_bert.py` of Transformers 5.23; Devlin et al. 2018, arXiv:1810.04805.
"""

from addnorm.outside.hugging_face.classes import (
    SIZES,
    CheckpointTensor,
    ConfigConstant,
    ConfigField,
    ForeignClass,
    Ignored,
    lines,
)
from addnorm.outside.hugging_face.forms import is_count

_LAYER, _THEIR_LAYER = "layers.{}", "bert.encoder.layer.{}"
_BODY, _HIDDEN = f"{_LAYER}.attention.body", f"{_LAYER}.feedforward.body"
_SELF = f"{_THEIR_LAYER}.attention.self"
_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}


class Bert(ForeignClass):
    """`BertForMaskedLM`."""

    architecture = "BertForMaskedLM"
    also_read = ("BertForPreTraining",)
    fixed = {
        "objective": "masked",
        "norm.kind": "layer",
        "placement.kind": "post",
        "placement.embedding": True,
        "position.kind": "learned",
        **{f"bias.{name}": True for name in ("q", "k", "v", "o", "up", "down", "head", "norm")},
    }
    fields = (
        *SIZES,
        ConfigField(theirs="intermediate_size", ours="hidden"),
        ConfigField(theirs="max_position_embeddings", ours="max_seq", default=512),
        ConfigField(theirs="type_vocab_size", ours="token_types", default=2),
        ConfigField(theirs="layer_norm_eps", ours="norm.eps", default=1e-12),
        ConfigField(theirs="hidden_act", ours="activation", default="gelu", names=_ACTIVATIONS),
        ConfigField(theirs="hidden_act", ours="head_transform", default="gelu", names=_ACTIVATIONS),
        ConfigField(theirs="tie_word_embeddings", ours="tied", default=True),
        ConfigField(theirs="attention_probs_dropout_prob", ours="dropout.attention", default=0.1),
        ConfigField(theirs="hidden_dropout_prob", ours="dropout.branch", default=0.1),
        ConfigField(theirs="hidden_dropout_prob", ours="dropout.embedding", default=0.1),
        ConfigField(theirs="initializer_range", ours="init_std", default=0.02),
    )
    constants = (
        ConfigConstant(theirs="is_decoder", values=(False,), default=False),
        ConfigConstant(theirs="add_cross_attention", values=(False,), default=False),
        ConfigConstant(theirs="position_embedding_type", values=("absolute",), default="absolute"),
    )
    harmless = ("directionality", r"pooler_\w+")  # of the original code, and of the pooler
    weights = (
        *lines("bert.embeddings.word_embeddings", "embedding", "weight"),
        CheckpointTensor(theirs="bert.embeddings.position_embeddings.weight", ours=("position.table",)),
        *lines("bert.embeddings.token_type_embeddings", "token_types", "weight"),
        *lines("bert.embeddings.LayerNorm", "embedding_norm", "weight", "bias"),
        *lines(f"{_SELF}.query", f"{_BODY}.query", "weight"),
        *lines(f"{_SELF}.key", f"{_BODY}.key", "weight"),
        CheckpointTensor(theirs=f"{_SELF}.query.bias", ours=(f"{_BODY}.qk_bias.q",)),
        CheckpointTensor(theirs=f"{_SELF}.key.bias", ours=(f"{_BODY}.qk_bias.k",)),
        *lines(f"{_SELF}.value", f"{_BODY}.value", "weight", "bias"),
        *lines(f"{_THEIR_LAYER}.attention.output.dense", f"{_BODY}.output", "weight", "bias"),
        *lines(f"{_THEIR_LAYER}.attention.output.LayerNorm", f"{_LAYER}.attention.stream_norm", "weight", "bias"),
        *lines(f"{_THEIR_LAYER}.intermediate.dense", f"{_HIDDEN}.up", "weight", "bias"),
        *lines(f"{_THEIR_LAYER}.output.dense", f"{_HIDDEN}.down", "weight", "bias"),
        *lines(f"{_THEIR_LAYER}.output.LayerNorm", f"{_LAYER}.feedforward.stream_norm", "weight", "bias"),
        *lines("cls.predictions.transform.dense", "head_transform.dense", "weight", "bias"),
        *lines("cls.predictions.transform.LayerNorm", "head_transform.norm", "weight", "bias"),
        CheckpointTensor(theirs="cls.predictions.decoder.weight", ours=("head.weight",)),
        CheckpointTensor(theirs="cls.predictions.bias", ours=("head.bias",), if_untied="cls.predictions.decoder.bias"),
    )
    ignored = (
        Ignored(pattern=r"bert\.pooler\..*"),
        Ignored(pattern=r"cls\.seq_relationship\..*"),
        Ignored(pattern=r"bert\.embeddings\.position_ids", expected="0, 1, 2, …", holds=is_count),
    )
    vllm = "vLLM has BERT for embeddings, not for masked language modelling."
    gguf = "llama.cpp converts the encoder alone, without the masked language model's head."
