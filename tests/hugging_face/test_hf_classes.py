"""Specs that are a class of Transformers: written as it, with equal logits, and read back."""

import json
from pathlib import Path

import pytest
import torch
from foreign import CLASSES, SIZES, assert_equal_to_rounding, auto_class, in_float64, model, tokens

import addnorm
from addnorm.errors import InputError
from addnorm.model.scaling import Scaling
from addnorm.outside.hugging_face.recognition import comparisons


@pytest.mark.parametrize("case", CLASSES)
@torch.no_grad()
def test_a_spec_that_is_a_class_is_written_as_that_class(case: str, tmp_path: Path) -> None:
    preset, changes, architecture = CLASSES[case]
    ours = model(preset, **changes)
    exported = addnorm.save_hf(ours, tmp_path / "exported")
    assert (exported.architecture, exported.needs_addnorm) == (architecture, False)
    assert not [path for path in exported.folder.iterdir() if path.suffix == ".py" or b"addnorm" in path.read_bytes()]
    foreign, info = auto_class(ours.spec).from_pretrained(exported.folder, output_loading_info=True)
    assert type(foreign).__name__ == architecture
    assert type(foreign).__module__.startswith("transformers.models.")
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = tokens()
    assert_equal_to_rounding(foreign.eval()(input_ids=ids).logits, ours(ids))
    assert_equal_to_rounding(in_float64(foreign)(input_ids=ids).logits, ours.double()(ids))


@pytest.mark.parametrize("case", CLASSES)
@torch.no_grad()
def test_a_written_class_is_read_back(case: str, tmp_path: Path) -> None:
    preset, changes, architecture = CLASSES[case]
    ours = model(preset, **changes)
    again = addnorm.load_hf(addnorm.save_hf(ours, tmp_path / "exported").folder)
    nearest = comparisons(again.spec)[0]
    assert (nearest.cls.architecture, nearest.differences, nearest.filled) == (architecture, (), ())
    ids = tokens()
    assert torch.equal(again(ids), ours(ids))


@pytest.mark.parametrize("case", [case for case in CLASSES if "bert" not in case])
def test_a_written_class_generates_what_ours_does(case: str, tmp_path: Path) -> None:
    preset, changes, _ = CLASSES[case]
    ours = model(preset, **changes)
    foreign = auto_class(ours.spec).from_pretrained(addnorm.save_hf(ours, tmp_path / "exported").folder).eval()
    prompt = tokens(seq=5)
    settings = {"max_new_tokens": 8, "eos_token_id": None, "pad_token_id": 0}
    expected = addnorm.generate(ours, prompt, new_tokens=8)
    sampled = addnorm.generate(ours, prompt, new_tokens=8, temperature=0.7, top_k=9, seed=4)
    for use_cache in (True, False):
        assert torch.equal(foreign.generate(prompt, do_sample=False, use_cache=use_cache, **settings), expected)
        torch.manual_seed(4)
        drawn = foreign.generate(
            prompt, do_sample=True, temperature=0.7, top_k=9, top_p=1.0, use_cache=use_cache, **settings
        )
        assert torch.equal(drawn, sampled)


def test_parameters_that_the_class_has_beyond_the_model_are_zeros_and_said(tmp_path: Path) -> None:
    exported = addnorm.save_hf(model("gpt2", bias=False), tmp_path / "exported")
    assert "they are zeros" in exported.notes[0]
    assert "bias.down, bias.k, bias.norm, bias.o, bias.q, bias.up, bias.v." in exported.notes[0]
    again = addnorm.load_hf(exported.folder)
    assert not again.layers[0].attention.body.output.bias.any()


@pytest.mark.parametrize(
    ("preset", "changes", "said"),
    [
        (
            "llama",
            {"scores": "sum"},
            "LlamaForCausalLM, which differs in one thing: scores: expected 'own', got 'sum'.",
        ),
        ("llama", {"residual": "rezero"}, "one thing: residual: expected 'add', got 'rezero'."),
        ("llama", {"placement": "sandwich"}, "one thing: placement: expected 'pre', got 'sandwich'."),
        ("gpt2", {"kv_heads": 2}, "GPT2LMHeadModel, which differs in one thing: kv_heads: expected 4, got 2."),
        ("gpt2", {"bias": True}, "GPT2LMHeadModel, which differs in one thing: bias.head: expected False, got True."),
        ("gpt2", {"position": "alibi"}, "one thing: position: expected 'learned', got 'alibi'."),
        ("bert", {}, "BertForMaskedLM, which differs in one thing: head_transform: expected 'gelu', got None."),
        ("realformer", {"head_transform": "gelu"}, "one thing: scores: expected 'own', got 'sum'."),
        (
            "llama",
            {"scaling": Scaling(width=16)},
            "LlamaForCausalLM, which differs in 2 things: scaling.power: expected",
        ),
        ("llama", {"scores": "sum", "residual": "rezero"}, "LlamaForCausalLM, which differs in 2 things: residual"),
    ],
)
def test_another_spec_names_what_differs_from_the_nearest_class(
    preset: str, changes: dict, said: str, tmp_path: Path
) -> None:
    exported = addnorm.save_hf(model(preset, **changes), tmp_path / "exported")
    assert exported.needs_addnorm
    assert said in exported.notes[0]
    assert [note.partition(":")[0] for note in exported.notes[1:]] == ["vLLM", "GGUF"]


def test_a_gated_attention_unit_is_no_class() -> None:
    spec = addnorm.preset("gau_alpha", **SIZES | {"heads": 1})
    assert all(comparison.differences for comparison in comparisons(spec))


@pytest.mark.parametrize("case", CLASSES)
def test_old_and_new_names_of_a_field_are_written_alike(case: str, tmp_path: Path) -> None:
    preset, changes, _ = CLASSES[case]
    config = json.loads((addnorm.save_hf(model(preset, **changes), tmp_path / "x").folder / "config.json").read_text())
    for name in ("rope_theta", "rotary_emb_base"):
        if name in config:
            assert config[name] == config["rope_parameters"]["rope_theta"]


def test_an_existing_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InputError, match="expected an empty or a new folder"):
        addnorm.save_hf(model("llama"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
