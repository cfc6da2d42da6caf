"""A class of Transformers that cannot be a specification: `load_hf` names the missing part, and what works."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import addnorm
from addnorm.errors import InputError
from addnorm.outside.hugging_face.missing import missing_parts

PARTS = [
    ("MixtralForCausalLM", {}, r"experts \(model\.layers\.0\.mlp\.experts"),
    ("SwitchTransformersForConditionalGeneration", {}, r"experts \(decoder\."),
    ("MambaForCausalLM", {}, r"convolutions across tokens \(backbone\.layers\.0\.mixer\.conv1d"),
    ("MambaForCausalLM", {}, r"tokens mixed by something else than attention"),
    ("FNetForMaskedLM", {}, r"tokens mixed by something else than attention \(fnet\.encoder\.layer\.0"),
    ("RwkvForCausalLM", {}, r"tokens mixed by something else than attention"),
    ("JambaForCausalLM", {}, r"28 of 32 layers without attention"),
    ("ReformerModelWithLMHead", {"is_decoder": True}, r"hashing \(num_hashes\)"),
    ("T5ForConditionalGeneration", {}, r"cross attention to an encoder"),
    ("WhisperForConditionalGeneration", {}, r"inputs beside tokens \(input_features\)"),
    ("DeepseekV3ForCausalLM", {"num_hidden_layers": 4}, r"latent attention \(kv_lora_rank\)"),
    ("LlavaForConditionalGeneration", {}, r"inputs beside tokens \(pixel_values\)"),
    ("DiffLlamaForCausalLM", {}, r"numbers inside attention \(model\.layers\.0\.self_attn\.lambda_q1\)"),
    ("LongformerForMaskedLM", {}, r"more matrices than attention and a gated feed-forward have \(9 in longformer"),
]
"""Classes, settings, and a part that each is known to have."""
SMALL = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 40,
}


def config_of(name: str, **settings: Any) -> dict[str, Any]:
    config: dict[str, Any] = getattr(transformers, name).config_class().to_dict()
    return config | settings | {"architectures": [name]}


@pytest.mark.parametrize(("name", "settings", "part"), PARTS)
def test_a_part_without_a_room_is_found_with_its_place(name: str, settings: dict[str, Any], part: str) -> None:
    found = missing_parts(config_of(name, **settings))
    assert any(re.match(part, each) for each in found), found


@pytest.mark.parametrize(
    "name", ["LlamaForCausalLM", "MistralForCausalLM", "BertForMaskedLM", "FlaubertWithLMHeadModel", "BloomForCausalLM"]
)
def test_a_plain_stack_of_attention_and_feed_forward_lacks_nothing(name: str) -> None:
    assert missing_parts(config_of(name)) == []


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("MambaForCausalLM", "convolutions across tokens"),
        (
            "MixtralForCausalLM",
            "experts",
        ),
        (
            "MistralForCausalLM",
            "what lacks is a table that reads its weights",
        ),
    ],
)
def test_load_hf_says_what_is_missing_and_what_it_names_works(name: str, part: str, tmp_path: Path) -> None:
    cls: Any = getattr(transformers, name)
    known = {*cls.config_class().to_dict()}
    torch.manual_seed(0)
    model = cls(cls.config_class(**{key: value for key, value in SMALL.items() if key in known})).eval()
    model.save_pretrained(tmp_path)
    with pytest.raises(
        InputError, match=rf"config\.json: \$\.model_type: .*{part}.*`addnorm audit` and `inspect`"
    ) as raised:
        addnorm.load_hf(tmp_path)
    assert "\n" not in str(raised.value)
    tokens = torch.randint(40, (1, 7), generator=torch.Generator().manual_seed(0))
    for read in addnorm.identities(model, tokens):  # no class here has a bias on its stream
        assert read.shift.abs().max() < 1e-9 * read.read.abs().max(), read.name
    assert addnorm.depth_matrix(model, tokens).sources[0] == "embedding"
    (tmp_path / "ids.json").write_text(json.dumps([*range(40), *range(40)]))
    measured = addnorm.inspect(tmp_path, text=tmp_path / "ids.json", length=8, sequences=2, map_sequences=1)
    assert measured["depth"], measured["runs"][0]["missing"]


def test_without_the_class_the_message_says_that_the_part_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "hyena", "architectures": ["HyenaForCausalLM"]}))
    with pytest.raises(InputError, match=r"got 'hyena'.*Which part is missing cannot be told"):
        addnorm.load_hf(tmp_path)
