"""Checkpoints that Transformers wrote, made on the spot from configurations with random weights, as models of ours."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from foreign import assert_equal_to_rounding, disturb, in_float64, tokens

import addnorm
from addnorm.errors import InputError

LLAMA = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
}
GPT2 = {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16}
WEIGHTS = "model.safetensors"

CHECKPOINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama with grouped queries and another theta": (
        "Llama",
        {**LLAMA, "num_key_value_heads": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ),
    "llama, tied, with biases": (
        "Llama",
        {**LLAMA, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "rms_norm_eps": 1e-3},
    ),
    "qwen2 with grouped queries": ("Qwen2", {**LLAMA, "num_key_value_heads": 1}),
    "qwen2, tied": ("Qwen2", {**LLAMA, "num_key_value_heads": 4, "tie_word_embeddings": True}),
    "gpt2": ("GPT2", GPT2),
    "gpt2, untied, with another width inside": (
        "GPT2",
        {
            **GPT2,
            "tie_word_embeddings": False,
            "n_inner": 40,
            "activation_function": "gelu",
            "layer_norm_epsilon": 1e-3,
        },
    ),
    "gpt_neox": ("GPTNeoX", LLAMA),
    "gpt_neox, sequential": ("GPTNeoX", {**LLAMA, "use_parallel_residual": False}),
    "gpt_neox without attention biases": (
        "GPTNeoX",
        {**LLAMA, "use_parallel_residual": False, "attention_bias": False, "rotary_pct": 1.0, "hidden_act": "gelu_new"},
    ),
    "bert": ("Bert", {**LLAMA, "type_vocab_size": 2}),
    "bert, untied, by tanh": ("Bert", {**LLAMA, "tie_word_embeddings": False, "hidden_act": "gelu_new"}),
}
ENDINGS = {"GPT2": "LMHeadModel", "Bert": "ForMaskedLM"}


def checkpoint(folder: Path, kind: str, settings: dict[str, Any], **saving: Any) -> Any:
    """Save a random model with that configuration, and return it."""
    config = getattr(transformers, f"{kind}Config")(**settings)
    foreign = getattr(transformers, kind + ENDINGS.get(kind, "ForCausalLM"))(config).eval()
    disturb(foreign)
    foreign.save_pretrained(folder, **saving)
    return foreign


@pytest.mark.parametrize("case", CHECKPOINTS)
@torch.no_grad()
def test_a_checkpoint_becomes_a_model_with_equal_logits(case: str, tmp_path: Path) -> None:
    foreign = checkpoint(tmp_path, *CHECKPOINTS[case])
    ours, ids = addnorm.load_hf(tmp_path), tokens()
    assert not ours.training
    assert_equal_to_rounding(ours(ids), foreign(input_ids=ids).logits)
    assert_equal_to_rounding(ours.double()(ids), in_float64(foreign)(input_ids=ids).logits)


@torch.no_grad()
def test_token_types_and_padding_of_bert(tmp_path: Path) -> None:
    foreign = checkpoint(tmp_path, "Bert", LLAMA)
    ours, ids = addnorm.load_hf(tmp_path), tokens()
    types, mask = ids % 2, torch.ones_like(ids)
    mask[0, 8:] = 0
    got = ours(ids, token_types=types, padding=mask.bool())
    expected = foreign(input_ids=ids, token_type_ids=types, attention_mask=mask).logits
    assert_equal_to_rounding(got[mask.bool()], expected[mask.bool()])


def test_a_checkpoint_in_several_files(tmp_path: Path) -> None:
    checkpoint(tmp_path / "whole", "Llama", LLAMA)
    checkpoint(tmp_path / "parts", "Llama", LLAMA, max_shard_size="20KB")
    assert (tmp_path / "parts" / f"{WEIGHTS}.index.json").is_file()
    whole = addnorm.load_hf(tmp_path / "whole").state_dict()
    parts = addnorm.load_hf(tmp_path / "parts").state_dict()
    assert whole.keys() == parts.keys()
    assert all(parts[name].shape == value.shape and bool(parts[name].any()) for name, value in whole.items())


def test_a_torch_file_without_the_prefix_of_the_head(tmp_path: Path) -> None:
    """The published GPT-2 is such a file, with buffers among the weights."""
    foreign = checkpoint(tmp_path, "GPT2", GPT2)
    weights = {name.removeprefix("transformer."): value for name, value in foreign.state_dict().items()}
    del weights["lm_head.weight"]
    weights["h.0.attn.bias"] = torch.ones(1, 1, 16, 16)
    (tmp_path / WEIGHTS).unlink()
    torch.save(weights, tmp_path / "pytorch_model.bin")
    with torch.no_grad():
        assert_equal_to_rounding(addnorm.load_hf(tmp_path)(tokens()), foreign(input_ids=tokens()).logits)


def test_narrow_weights_become_float32_with_equal_values(tmp_path: Path) -> None:
    foreign = checkpoint(tmp_path, "Llama", LLAMA)
    foreign.bfloat16().save_pretrained(tmp_path)
    ours = addnorm.load_hf(tmp_path)
    assert ours.embedding.weight.dtype == torch.float32
    assert torch.equal(ours.embedding.weight, foreign.model.embed_tokens.weight.float())


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("Qwen2", {"use_sliding_window": True}, r"\$.use_sliding_window: expected False, got True"),
        ("Llama", {"head_dim": 16}, r"\$.head_dim: expected hidden_size / num_attention_heads = 32 / 4, got 16"),
        ("Llama", {"hidden_act": "gelu"}, r"\$.hidden_act: expected 'silu', got 'gelu'"),
        ("Bert", {"hidden_act": "tanh"}, r"\$.hidden_act: expected one of 'gelu', .*got 'tanh'"),
        (
            "Llama",
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
            r"\$.rope_parameters.rope_type: expected 'default', got 'linear': its rotary frequencies are scaled",
        ),
    ],
)
def test_a_setting_that_no_model_of_ours_has_is_named(kind: str, settings: Any, said: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, kind, {**LLAMA, **settings})
    with pytest.raises(InputError, match=said):
        addnorm.load_hf(tmp_path)


def rewrite(folder: Path, **changes: Any) -> None:
    """Change fields of config.json; None removes one."""
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(
        json.dumps({name: value for name, value in config.items() if value is not None})
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "llamma"}, r"\$.model_type: expected one of bert, .*got 'llamma'.*Did you mean 'llama'"),
        ({"architectures": ["LlamaForSequenceClassification"]}, r"\$.architectures: expected LlamaForCausalLM, got"),
        ({"hidden_size": None}, r"\$: expected a field 'hidden_size', got none"),
        (
            {"intermediate_size": 40},
            r"model.safetensors: model.layers.0.mlp.gate_proj.weight: expected shape \[40, 32\]",
        ),
        (
            {"num_hidden_layers": 3},
            r"expected a tensor model.layers.2.input_layernorm.weight of shape \[32\], got none",
        ),
        ({"num_hidden_layers": 1}, r"got also model.layers.1.input_layernorm.weight and 8 more"),
        ({"hidden_size": "wide"}, r"config.json as a spec: \$.width: expected a whole number, got 'wide'"),
        ({"quantization_config": {"bits": 4}}, r"\$.quantization_config: expected none"),
    ],
)
def test_a_damaged_checkpoint_is_one_message_with_its_path(changes: Any, said: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, "Llama", LLAMA)
    rewrite(tmp_path, **changes)
    with pytest.raises(InputError, match=said) as raised:
        addnorm.load_hf(tmp_path)
    assert str(tmp_path) in str(raised.value)


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"expected the folder of a Transformers checkpoint with config.json, got none"
    ):
        addnorm.load_hf(tmp_path)
    checkpoint(tmp_path, "Llama", LLAMA)
    (tmp_path / WEIGHTS).write_bytes(b"not tensors")
    with pytest.raises(InputError, match=rf"{WEIGHTS}: expected tensors, got an error"):
        addnorm.load_hf(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(InputError, match=r"expected weights in one of model.safetensors"):
        addnorm.load_hf(tmp_path)
