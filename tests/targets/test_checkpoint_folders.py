"""Checkpoints whose configuration names no class, and folders written by `addnorm audit --strip`."""

import json
import sys
import types
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertForTokenClassification, BertModel

from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.outside.targets import resolve
from addnorm.outside.targets.checkpoint import load_checkpoint
from addnorm.outside.targets.checkpoint_folder import every_name, removed_biases

SMALL = {
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "vocab_size": 50,
    "max_position_embeddings": 16,
}


def saved(cls: type, folder: Path, **config: object) -> Path:
    torch.manual_seed(0)
    cls(BertConfig(**SMALL, **config)).save_pretrained(folder)
    return folder


def change(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    content = json.loads(path.read_text(encoding="utf-8")) | fields
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}), encoding="utf-8")


@pytest.mark.parametrize("cls", [BertForTokenClassification, BertForMaskedLM])
def test_the_class_that_fits_is_proposed(cls: type, tmp_path: Path) -> None:
    folder = saved(cls, tmp_path / "old")
    change(folder, architectures=None)
    with pytest.raises(
        InputError, match=rf'The weights fit {cls.__name__} best\. Add "architectures": \["{cls.__name__}"\]'
    ):
        resolve(folder)


@pytest.mark.parametrize("kind", ["LlamaForCausalLM", "ViTForImageClassification", "WhisperForConditionalGeneration"])
def test_a_class_is_proposed_where_others_of_its_prefix_need_other_packages(kind: str, tmp_path: Path) -> None:
    """`LlamaForCausalLM` stands beside `Llama4ImageProcessor`, whose attributes raise without torchvision."""
    cls = getattr(transformers, kind)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    whisper = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    config = whisper | {
        "decoder_attention_heads": 2,
        "vocab_size": 60,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 2,
    }
    cls(cls.config_class(**(config if "Whisper" in kind else sizes))).save_pretrained(tmp_path)
    change(tmp_path, architectures=None)
    with pytest.raises(InputError, match=rf"The weights fit {kind} best"):
        resolve(tmp_path)


def test_weights_that_would_be_ignored_are_named(tmp_path: Path) -> None:
    folder = saved(BertForTokenClassification, tmp_path / "old")
    weights = load_file(folder / "model.safetensors")
    from safetensors.torch import save_file

    extra = {"adapter.weight": torch.zeros(2)}
    save_file(weights | extra, folder / "model.safetensors", metadata={"format": "pt"})
    change(folder, architectures=None)
    with pytest.raises(
        InputError, match=r"fit BertForTokenClassification best, which ignores the weight adapter\.weight"
    ):
        resolve(folder)
    change(folder, architectures=["BertForTokenClassification"])
    assert any("ignores the weight adapter.weight" in note for note in resolve(folder).notes)
    with pytest.raises(InputError, match=r"got also the weight adapter\.weight, which it does not read"):
        load_checkpoint(folder)  # a variant of a study has no notes


def test_an_unknown_type_is_told_what_to_add(tmp_path: Path) -> None:
    folder = saved(BertModel, tmp_path / "old")
    change(folder, architectures=None, model_type="no-such-type")
    with pytest.raises(InputError, match=r'Add the class, such as "architectures"'):
        resolve(folder)


def test_a_field_that_only_the_class_reads_is_taken() -> None:
    sizes = {**SMALL, "relative_attention": True, "pos_att_type": ["p2c"]}
    target = resolve("transformers:DebertaV2Model", config={**sizes, "position_buckets": 4})
    assert target.model.config.position_buckets == 4
    with pytest.raises(InputError, match="no field 'position_bucket'"):
        resolve("transformers:DebertaV2Model", config={**sizes, "position_bucket": 4})


def test_a_broken_import_is_one_message(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setitem(sys.modules, "transformers", Broken("transformers"))
    assert main(["audit", "transformers:ViTModel"]) == 2
    error = capsys.readouterr().err
    assert "transformers.ViTModel cannot be imported: RuntimeError: operator torchvision::nms does not exist" in error
    assert "Traceback" not in error


def test_a_stripped_folder_is_loaded_by_its_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved(BertForMaskedLM, tmp_path / "old")
    (folder / "vocab.txt").write_text("[PAD]\n", encoding="utf-8")
    (folder / "modeling.py").write_text("raise SystemExit\n", encoding="utf-8")
    out = tmp_path / "smaller"
    assert main(["audit", str(folder), "--methods", "static", "--strip", str(out), "--json"]) == 0
    certificate = json.loads(capsys.readouterr().out)["certificate"]
    assert {file.name for file in out.iterdir()} >= {"config.json", "model.safetensors", "vocab.txt"}
    assert not (out / "modeling.py").exists()
    assert (out / "model.safetensors").stat().st_mode == (out / "vocab.txt").stat().st_mode
    before, after = (BertForMaskedLM.from_pretrained(each).eval().double() for each in (folder, out))
    weights = dict(after.named_parameters(remove_duplicate=False))
    absent = [*certificate["removed"], *certificate["zeroed"]]
    assert absent
    assert not any(weights[name].any() for name in every_name(after, absent))
    tokens = torch.randint(50, (2, 9), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(before(tokens).logits, after(tokens).logits, rtol=0, atol=1e-6)


def test_a_stripped_folder_is_read_back_without_what_its_metadata_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stripped once more, to a folder and by way of a file, it stays a folder that its class loads."""
    old, new, again, file = (tmp_path / name for name in ("old", "new", "again", "new.safetensors"))
    saved(BertForMaskedLM, old)
    fast = ("--methods", "static", "--json")
    assert main(["audit", str(old), "--strip", str(new), *fast]) == 0
    first = json.loads(capsys.readouterr().out)
    gone = {*first["certificate"]["removed"], *first["certificate"]["zeroed"]}
    assert main(["audit", str(new), "--strip", str(file), *fast]) == 0
    second = json.loads(capsys.readouterr().out)
    assert {each["parameter"] for each in second["findings"]} == {
        each["parameter"] for each in first["findings"]
    } - gone
    assert second["certificate"]["scalars"] == 0
    assert any("removed by `addnorm audit --strip`" in note for note in second["target"]["notes"])
    assert main(["audit", str(file), "--strip", str(again), *fast]) == 0
    states = [BertForMaskedLM.from_pretrained(each).state_dict() for each in (new, again)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert set(removed_biases(again / "model.safetensors")) == gone


def test_a_bias_that_was_trained_since_is_no_removed_one(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2), "b": torch.ones(2)}, tmp_path / "m.safetensors", metadata={"removed": '["a", "b"]'})
    assert removed_biases(tmp_path / "m.safetensors") == ("a",)
    (tmp_path / "torn.safetensors").write_bytes(b"no")
    assert removed_biases(tmp_path / "torn.safetensors") == ()


def test_a_folder_needs_a_model_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain.py").write_text(
        "import torch\ndef model():\n    return torch.nn.Linear(2, 2), torch.ones(1, 2)\n", encoding="utf-8"
    )
    assert main(["audit", "plain.py:model", "--strip", "out"]) == 2
    assert "expected a Transformers model for a folder, got Linear" in capsys.readouterr().err
    assert not Path("out").exists()
    assert transformers.BertModel is BertModel
