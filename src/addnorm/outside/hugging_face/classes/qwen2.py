"""Qwen2: Llama with biases on queries, keys and values alone.

Source: `modeling_qwen2.py` of Transformers 5.23; Qwen team 2024, arXiv:2407.10671.
"""

from addnorm.outside.hugging_face.classes import HAS_CLASS, OWN_TOKENIZER, ConfigConstant, ConfigField, ForeignClass
from addnorm.outside.hugging_face.classes._llama_like import CONSTANTS, FIELDS, FIXED, IGNORED, SWITCHES, WEIGHTS


class Qwen2(ForeignClass):
    """`Qwen2ForCausalLM`."""

    architecture = "Qwen2ForCausalLM"
    fixed = {**FIXED, "bias.q": True, "bias.k": True, "bias.v": True}
    fields = (*FIELDS, ConfigField(theirs="max_position_embeddings", ours="max_seq", default=32_768))
    constants = (
        *CONSTANTS,
        ConfigConstant(
            theirs="use_sliding_window",
            values=(False,),
            default=False,
            meaning="some of its layers attend to a sliding window",
        ),
    )
    switches = SWITCHES
    harmless = ("sliding_window", "max_window_layers")  # of layers that `use_sliding_window` switches on
    weights = WEIGHTS
    ignored = IGNORED
    vllm = HAS_CLASS
    gguf = OWN_TOKENIZER
