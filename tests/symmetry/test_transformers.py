"""Classes of Transformers in reduced size: every measured direction is explained, or what is left is named."""

from typing import Any

import pytest
import torch

import addnorm

transformers = pytest.importorskip("transformers")

TOKENS = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 3, 1, 4, 1, 5, 9, 2]])
LIKE_LLAMA = {
    "vocab_size": 11,
    "hidden_size": 8,
    "intermediate_size": 5,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "max_position_embeddings": 16,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    "use_cache": False,
    "tie_word_embeddings": False,
}
MORE_TOKENS = torch.arange(27).reshape(3, 9)
"""For parallel blocks: the feed-forward network beside the first attention sees tokens alone, so that fewer of them would make
its numbers look free."""
PARALLEL = ("GPTNeoXForCausalLM", "PhiForCausalLM")
DROPOUT = dict.fromkeys(
    ("attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout", "resid_dropout"), 0.0
)
LIKE_GPT2 = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16, "n_inner": 5}

CLASSES: list[tuple[str, dict[str, Any]]] = [
    ("LlamaForCausalLM", {}),
    ("MistralForCausalLM", {}),
    ("Qwen2ForCausalLM", {}),
    ("Qwen3ForCausalLM", {}),
    ("GPT2LMHeadModel", LIKE_GPT2),
    ("GPTNeoXForCausalLM", {"num_key_value_heads": None}),
    ("OPTForCausalLM", {"ffn_dim": 5, "word_embed_proj_dim": 8, "pad_token_id": 1}),
    ("GemmaForCausalLM", {}),
    ("Gemma2ForCausalLM", {"query_pre_attn_scalar": 4, "sliding_window": 8}),
    ("Gemma3ForCausalLM", {"query_pre_attn_scalar": 4, "sliding_window": 8}),
    ("PhiForCausalLM", {"partial_rotary_factor": 0.5}),
    ("Olmo2ForCausalLM", {}),
]
QUICK = ("LlamaForCausalLM",)


def reduced(name: str, settings: dict[str, Any]) -> Any:
    """A class in reduced size, with the fields that its configuration has."""
    cls = getattr(transformers, name)
    known = {*cls.config_class().to_dict(), *cls.config_class.attribute_map}
    fields = {key: each for key, each in {**LIKE_LLAMA, **DROPOUT, **settings}.items() if key in known}
    torch.manual_seed(0)
    return cls(cls.config_class(**fields)).eval()


def measured(name: str, settings: dict[str, Any]) -> addnorm.Symmetries:
    """The symmetries of a class in reduced size."""
    if name in PARALLEL:
        model, tokens = reduced(name, {"vocab_size": MORE_TOKENS.numel(), **settings}), MORE_TOKENS
    else:
        model, tokens = reduced(name, settings), TOKENS
    return addnorm.symmetries(model, {"input_ids": tokens}, points=1)


@pytest.mark.parametrize(
    ("name", "settings"),
    [pytest.param(*each, id=each[0], marks=() if each[0] in QUICK else pytest.mark.thorough) for each in CLASSES],
)
def test_measured_directions_are_explained(name: str, settings: dict[str, Any]) -> None:
    found = measured(name, settings)
    assert found.refuted == ()
    assert found.explained + sum(each.size for each in found.unexplained) == found.redundant
    assert found.unexplained == ()
