"""Transformers classes and local checkpoints as targets. Nothing here needs a network."""

import json
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from transformers import BertConfig, BertModel

from addnorm.errors import InputError
from addnorm.outside.targets import resolve
from addnorm.outside.targets.example_inputs import example_inputs

SMALL = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12, "vocab_size": 50}
PERCEIVER = {"num_latents": 2, "d_latents": 8, "d_model": 8, "num_blocks": 1, "num_self_attends_per_block": 1}
SEQ2SEQ = {
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12,
    "vocab_size": 60,
}

T5 = {"d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "vocab_size": 60}
_TOWER = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
CLIP = {
    "text_config": {**_TOWER, "vocab_size": 60, "max_position_embeddings": 16, "projection_dim": 8},
    "vision_config": {**_TOWER, "image_size": 16, "patch_size": 8, "projection_dim": 8},
}


@pytest.mark.parametrize(
    ("name", "config", "inputs"),
    [
        ("BertForMaskedLM", SMALL, {"input_ids": (4, 12)}),
        ("GPT2LMHeadModel", {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 50}, {"input_ids": (4, 12)}),
        ("LlamaForCausalLM", {**SMALL, "max_position_embeddings": 10}, {"input_ids": (4, 8)}),
        (
            "BartForConditionalGeneration",
            {**SEQ2SEQ, "pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0},
            {"input_ids": (4, 12), "decoder_input_ids": (4, 12)},
        ),
        (
            "WhisperModel",
            {**SEQ2SEQ, "max_source_positions": 6, "pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0},
            {"input_features": (4, 80, 12), "decoder_input_ids": (4, 12)},
        ),
        ("ViTModel", {**SMALL, "image_size": 32, "vocab_size": None}, {"pixel_values": (4, 3, 32, 32)}),
        ("Wav2Vec2Model", {**SMALL, "hidden_size": 16, "num_conv_pos_embeddings": 16}, {"input_values": (4, 4160)}),
        (
            "ASTModel",
            {**SMALL, "num_mel_bins": 32, "max_length": 48, "vocab_size": None},
            {"input_values": (4, 48, 32)},
        ),
        ("T5ForConditionalGeneration", T5, {"input_ids": (4, 12), "decoder_input_ids": (4, 12)}),
        ("T5EncoderModel", T5, {"input_ids": (4, 12)}),
        ("CLIPModel", CLIP, {"input_ids": (4, 12), "pixel_values": (4, 3, 16, 16)}),
        ("SiglipModel", CLIP, {"input_ids": (4, 12), "pixel_values": (4, 3, 16, 16)}),
        ("CLIPTextModel", CLIP["text_config"], {"input_ids": (4, 12)}),
        ("CLIPVisionModel", CLIP["vision_config"], {"pixel_values": (4, 3, 16, 16)}),
    ],
)
def test_inputs_are_derived(name: str, config: dict[str, Any], inputs: dict[str, tuple[int, ...]]):
    config = {field: value for field, value in config.items() if value is not None}
    state = torch.get_rng_state()
    target = resolve(f"transformers:{name}", config=config)
    assert torch.equal(torch.get_rng_state(), state)
    assert {key: tuple(value.shape) for key, value in target.inputs.items()} == inputs
    assert not target.model.training
    with torch.no_grad():
        out = target.model(**target.inputs)
    first = next(iter(out.values()))
    assert torch.isfinite(first).all()
    assert "past_key_values" not in out
    special = {getattr(target.model.config, f"{kind}_token_id", None) for kind in ("pad", "bos", "eos")}
    for tensor in target.inputs.values():
        if not tensor.is_floating_point():
            assert not special & set(tensor.flatten().tolist())


class Listener(torch.nn.Module):
    """Reads spectrograms (time, bins), or samples where convolutions come first, under one name of its input."""

    main_input_name = "input_values"

    def __init__(self, **config: Any):
        super().__init__()
        self.config = SimpleNamespace(**config)
        self.read = torch.nn.Linear(config["num_mel_bins"], 3)

    def forward(self, input_values: torch.Tensor) -> torch.Tensor:
        """Entries of the last axis, of samples in windows."""
        if hasattr(self.config, "conv_dim"):
            input_values = input_values.unfold(-1, self.config.num_mel_bins, self.config.inputs_to_logits_ratio)
        return self.read(input_values)


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        ({"num_mel_bins": 8, "max_length": 16}, (4, 16, 8)),
        ({"num_mel_bins": 5, "max_length": 7, "patch_size": 2}, (4, 7, 5)),
        ({"num_mel_bins": 1, "max_length": 3}, (4, 3, 1)),
        ({"num_mel_bins": 8, "max_length": 20, "conv_dim": (4,), "inputs_to_logits_ratio": 10}, (4, 130)),
        ({"num_mel_bins": 8, "conv_dim": (4,), "inputs_to_logits_ratio": 8}, (4, 104)),
    ],
)
def test_a_spectrogram_is_told_from_samples(config: dict[str, Any], shape: tuple[int, ...]):
    given, (said,) = example_inputs(Listener(**config))
    assert tuple(given["input_values"].shape) == shape
    assert ("spectrograms" in said) == (len(shape) == 3)


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        (
            "ViltModel",
            {**SMALL, "image_size": 16, "patch_size": 8},
            r"derived as input_ids, which raised ValueError: .*pixel_values.* --inputs .*; the class accepts input_ids, .*",
        ),
        (
            "TimeSeriesTransformerModel",
            {"prediction_length": 4},
            "expected one of .*, got 'past_values'.* --inputs spec.json",
        ),
    ],
)
def test_what_cannot_be_derived_is_named(name: str, config: dict[str, Any], said: str):
    with pytest.raises(InputError, match=said):
        resolve(f"transformers:{name}", config=config)


def test_the_same_weights_every_time():
    one, other = (resolve("transformers:BertModel", config=SMALL).model.state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("Bert", None, "'Bert', which is not known. Did you mean 'BertModel'?"),
        ("AutoModel", None, "'AutoModel', which is not a single model class"),
        ("BertConfig", None, "is not a single model class"),
        ("_LazyModule", None, "is not known"),
        ("BertModel", {"num_hidden_lyers": 2}, "has no field 'num_hidden_lyers'. Did you mean 'num_hidden_layers'?"),
        ("BertModel", {"num_hidden_layers": "two"}, "--config is refused by BertConfig"),
        ("BertModel", {"hidden_size": 10, "num_attention_heads": 3}, "not a multiple of the number of attention heads"),
        ("LlamaForCausalLM", {}, "expected at most 2 G parameters, got"),
        ("CLIPVisionModel", {"image_size": None}, "cannot be built"),
        ("PerceiverModel", PERCEIVER, "got 'inputs'"),
    ],
)
def test_a_mistake_is_named(name: str, config: dict[str, Any] | None, said: str):
    with pytest.raises(InputError) as error:
        resolve(f"transformers:{name}", config=config)
    assert said in str(error.value)


def test_without_transformers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'addnorm\[transformers\]'"):
        resolve("transformers:BertModel")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Folder of a small BERT, as `save_pretrained` writes it."""
    from addnorm.outside.targets.transformers_class import quiet_transformers

    folder = tmp_path / "bert"
    with quiet_transformers():
        BertModel(BertConfig(**SMALL)).save_pretrained(folder)
    return folder


def change(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **fields}), encoding="utf-8")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_a_checkpoint_of_safetensors(saved: Path):
    target = resolve(saved)
    assert target.kind == "checkpoint"
    state = target.model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in weights(saved).items())
    assert target.inputs["input_ids"].shape == (4, 12)
    assert "model.safetensors" in target.notes[0]


def test_a_checkpoint_of_torch_weights(saved: Path):
    content = weights(saved)
    (saved / "model.safetensors").unlink()
    torch.save(content, saved / "pytorch_model.bin")
    state = resolve(saved).model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in content.items())


def test_a_checkpoint_in_shards(saved: Path):
    content = weights(saved)
    model = resolve(saved).model
    (saved / "model.safetensors").unlink()
    model.save_pretrained(saved, max_shard_size="2KB")
    assert len(list(saved.glob("model-*.safetensors"))) > 1
    target = resolve(saved)
    assert "model.safetensors.index.json" in target.notes[0]
    state = target.model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in content.items())


class Evil:
    """Unpickled without care, it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_a_pickle_runs_nothing(saved: Path, tmp_path: Path):
    (saved / "model.safetensors").unlink()
    mark = tmp_path / "was-run"
    torch.save({"embeddings.word_embeddings.weight": Evil(mark)}, saved / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pytorch_model\.bin: expected tensors alone, got pickled Python objects"):
        resolve(saved)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Evil(mark)))  # it would have, had it been loaded
    assert mark.exists()


def test_code_in_the_folder_is_not_run(saved: Path, tmp_path: Path):
    mark = tmp_path / "was-run"
    (saved / "modeling_mine.py").write_text(f"open({str(mark)!r}, 'w').close()\n", encoding="utf-8")
    change(saved, auto_map={"AutoModel": "modeling_mine.Mine"}, architectures=["Mine"])
    with pytest.raises(InputError, match=r"has 'auto_map': its model is Python code"):
        resolve(saved)
    assert not mark.exists()


def test_an_attention_kernel_from_elsewhere_is_not_fetched(saved: Path):
    change(saved, attn_implementation="somebody/kernels", _attn_implementation="somebody/kernels")
    assert resolve(saved).model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"architectures": None}, "expected one class in 'architectures', got null"),
        ({"architectures": ["BertMdel"]}, "'BertMdel', which is not known. Did you mean 'BertModel'?"),
        ({"quantization_config": {"bits": 4}}, "has 'quantization_config': its weights are quantised"),
        ({"architectures": ["BertForMaskedLM"]}, "expected all weights of BertForMaskedLM, got none for "),
        ({"hidden_size": 16}, "of shape (16,) by config.json, got (8,) in model.safetensors; 21 more differ"),
        ({"num_hidden_layers": 2}, "expected all weights of BertModel, got none for encoder.layer.1."),
    ],
)
def test_a_damaged_checkpoint_is_named(saved: Path, fields: dict[str, Any], said: str):
    change(saved, **fields)
    with pytest.raises(InputError) as error:
        resolve(saved)
    assert said in str(error.value)


def test_missing_and_torn_files_are_named(saved: Path):
    whole = (saved / "model.safetensors").read_bytes()
    (saved / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"model\.safetensors: expected tensors, got an error"):
        resolve(saved)
    (saved / "model.safetensors").unlink()
    with pytest.raises(InputError, match="expected weights in one of"):
        resolve(saved)
    (saved / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"config\.json: expected JSON"):
        resolve(saved)


def test_transformers_is_the_one_that_was_asked(saved: Path):
    assert isinstance(resolve(saved).model, transformers.BertModel)
