"""Llama: pre-norm RMS, rotary positions, SwiGLU, biases on all attention or all feed-forward matrices or on none.

Source: `modeling_llama.py` of Transformers 5.23; Touvron et al. 2023, arXiv:2302.13971.
"""

from addnorm.outside.hugging_face.classes import HAS_CLASS, OWN_TOKENIZER, ConfigConstant, ConfigField, ForeignClass
from addnorm.outside.hugging_face.classes._llama_like import CONSTANTS, FIELDS, FIXED, IGNORED, SWITCHES, WEIGHTS


class Llama(ForeignClass):
    """`LlamaForCausalLM`."""

    architecture = "LlamaForCausalLM"
    fixed = FIXED
    fields = (
        *FIELDS,
        ConfigField(theirs="max_position_embeddings", ours="max_seq", default=2048),
        *(ConfigField(theirs="attention_bias", ours=f"bias.{name}", default=False) for name in ("q", "k", "v", "o")),
        *(ConfigField(theirs="mlp_bias", ours=f"bias.{name}", default=False) for name in ("up", "down")),
    )
    constants = CONSTANTS
    switches = (
        *SWITCHES,
        # The class has no windows, but its cache has if this field is there.
        ConfigConstant(theirs="sliding_window", values=(None,), default=None),
        ConfigConstant(theirs="use_sliding_window", values=(False,), default=False),
    )
    harmless = ("pretraining_tp", "max_sequence_length", "is_llama_config")
    weights = WEIGHTS
    ignored = IGNORED
    vllm = HAS_CLASS
    gguf = OWN_TOKENIZER
