"""Models whose audit would not fit into memory: measured before they are built, shrunk or refused."""

from pathlib import Path

import pytest
from transformers import BertConfig, BertModel, LlamaConfig

from addnorm.errors import InputError
from addnorm.outside.targets import resolve
from addnorm.outside.targets.shrinking import pattern
from addnorm.redundancy.execution.memory import budget_bytes, needed_bytes

SMALL = {
    "num_hidden_layers": 6,
    "hidden_size": 96,
    "num_attention_heads": 6,
    "intermediate_size": 128,
    "vocab_size": 50,
}


def _needed(**config: int) -> int:
    model = BertModel(BertConfig(**{**SMALL, **config}))
    return needed_bytes(sum(each.numel() for each in model.parameters()))


def test_what_fits_is_built_as_it_is() -> None:
    target = resolve("transformers:BertModel", config=SMALL, memory=_needed())
    assert target.shrunk == ""
    assert target.model.config.num_hidden_layers == 6


def test_layers_go_first_then_width() -> None:
    just_layers = resolve("transformers:BertModel", config=SMALL, memory=_needed() - 1)
    assert just_layers.shrunk == "2 layers"
    assert just_layers.model.config.hidden_size == 96
    both = resolve("transformers:BertModel", config=SMALL, memory=_needed(num_hidden_layers=2) - 1)
    assert both.shrunk == "2 layers, width 64"
    assert (both.model.config.hidden_size, both.model.config.num_attention_heads) == (64, 4)
    full = {pattern(name) for name, _ in BertModel(BertConfig(**SMALL)).named_parameters()}
    assert {pattern(name) for name, _ in both.model.named_parameters()} == full


def test_grouped_heads_stay_grouped() -> None:
    config = {**SMALL, "num_attention_heads": 8, "num_key_value_heads": 2}
    target = resolve("transformers:LlamaForCausalLM", config=config, memory=5_000_000)
    assert isinstance(target.model.config, LlamaConfig)
    assert target.model.config.num_attention_heads == 4 * target.model.config.num_key_value_heads


def test_what_cannot_be_shrunk_enough_is_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match=r"takes about .* GB, 1e-06 GB are allowed; no reduced .* --memory"):
        resolve("transformers:BertModel", config=SMALL, memory=1000)


def test_a_checkpoint_is_shrunk_before_its_weights_are_read(tmp_path: Path) -> None:
    model = BertModel(BertConfig(**SMALL))
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not read")
    target = resolve(tmp_path, memory=_needed() - 1)
    assert (target.kind, target.shrunk) == ("checkpoint", "2 layers")


def test_the_budget_is_half_of_what_is_left_or_as_given() -> None:
    assert budget_bytes(1.5) == 1_500_000_000
    assert budget_bytes(None) > 0
    with pytest.raises(InputError, match="above zero, got -1"):
        budget_bytes(-1.0)
