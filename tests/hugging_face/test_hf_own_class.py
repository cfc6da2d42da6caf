"""Models that are no class of Transformers: `addnorm.hf` in Transformers' own machinery."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from foreign import SIZES, assert_equal_to_rounding, model, tokens
from transformers import dynamic_module_utils

import addnorm
from addnorm.errors import InputError
from addnorm.hf import AddnormCache, AddnormConfig, AddnormForCausalLM, AddnormForMaskedLM
from addnorm.model.scaling import Scaling

JOINTS = {
    "summed scores": {"scores": "sum", "position": "alibi"},
    "learned positions": {"residual": "rezero", "position": "learned", "tied": True},
    "replay": {"residual": {"kind": "replay", "weights": "softmax"}, "kv_heads": 2},
    "scaled (muP)": {"scaling": Scaling(width=16, depth=1)},
    "gated attention units": {"heads": 1, "gau": {"key_dim": 8}, "placement": "post"},
}
GREEDY = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}


def exported(folder: Path, preset: str = "llama", **changes: object) -> tuple[addnorm.ModelSpec, object]:
    """A model of ours, and the same one as Transformers loads it."""
    ours = model(preset, **changes)
    result = addnorm.save_hf(ours, folder)
    assert result.needs_addnorm
    auto = getattr(transformers, result.auto_class)
    return ours, auto.from_pretrained(folder).eval()


@pytest.mark.parametrize("joints", JOINTS.values(), ids=JOINTS)
def test_generation_equals_ours_with_and_without_cache(joints: dict, tmp_path: Path) -> None:
    ours, theirs = exported(tmp_path / "x", **joints)
    assert type(theirs) is AddnormForCausalLM
    prompt = tokens(seq=5)
    expected = addnorm.generate(ours, prompt, new_tokens=8)
    for use_cache in (True, False):
        got = theirs.generate(prompt, max_new_tokens=8, use_cache=use_cache, **GREEDY)
        assert torch.equal(got, expected)
    sampled = addnorm.generate(ours, prompt, new_tokens=8, temperature=0.7, top_k=9, seed=4)
    for use_cache in (True, False):
        torch.manual_seed(4)
        got = theirs.generate(
            prompt,
            max_new_tokens=8,
            use_cache=use_cache,
            **(GREEDY | {"do_sample": True, "temperature": 0.7, "top_k": 9}),
        )
        assert torch.equal(got, sampled)


@pytest.mark.parametrize("joints", JOINTS.values(), ids=JOINTS)
@torch.no_grad()
def test_left_padding_changes_nothing(joints: dict, tmp_path: Path) -> None:
    ours, theirs = exported(tmp_path / "x", **joints)
    ids = tokens(batch=3, seq=8)
    mask = torch.ones_like(ids)
    mask[1, :3], mask[2, :1] = 0, 0
    logits = theirs(input_ids=ids, attention_mask=mask).logits
    for row, skipped in ((0, 0), (1, 3), (2, 1)):
        assert_equal_to_rounding(logits[row, skipped:], ours(ids[row : row + 1, skipped:])[0])
    for options in (GREEDY, GREEDY | {"use_cache": False}, GREEDY | {"num_beams": 3}):
        got = theirs.generate(ids, attention_mask=mask, max_new_tokens=4, **options)
        for row, skipped in ((0, 0), (1, 3), (2, 1)):
            own = ids[row : row + 1, skipped:]
            alone = theirs.generate(own, attention_mask=torch.ones_like(own), max_new_tokens=4, **options)
            assert torch.equal(got[row, skipped:], alone[0])
        if options is GREEDY:
            assert torch.equal(got[1, 3:], addnorm.generate(ours, ids[1:2, 3:], new_tokens=4)[0])


@torch.no_grad()
def test_a_cache_continues_and_can_be_repeated_and_selected(tmp_path: Path) -> None:
    ours, theirs = exported(tmp_path / "x", scores="sum")
    ids = tokens(batch=2, seq=8)
    mask = torch.ones_like(ids)
    mask[1, :2] = 0
    cache = theirs(ids[:, :6], attention_mask=mask[:, :6], use_cache=True).past_key_values
    assert isinstance(cache, AddnormCache)
    assert cache.get_seq_length() == 6
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([3, 0]))
    got = theirs(ids[[1, 0], 6:], attention_mask=mask[[1, 0]], past_key_values=cache).logits
    assert_equal_to_rounding(got[0], ours(ids[1:, 2:])[0, 4:])
    assert_equal_to_rounding(got[1], ours(ids[:1])[0, 6:])
    assert cache.get_seq_length() == 8


def test_what_a_cache_cannot_hold_is_refused(tmp_path: Path) -> None:
    _, theirs = exported(tmp_path / "x", scores="sum")
    ids, hole = tokens(seq=4), torch.tensor([[1, 1, 0, 1], [1, 1, 1, 0]])
    with pytest.raises(InputError, match="zeros on the left alone"):
        theirs(ids, attention_mask=hole, use_cache=True)
    with pytest.raises(InputError, match="expected an AddnormCache or None, got a DynamicCache"):
        theirs(ids, past_key_values=transformers.DynamicCache())
    with pytest.raises(InputError, match="at least one real token in every row"):
        theirs(ids, attention_mask=torch.zeros_like(ids), use_cache=True)
    with torch.no_grad():  # padding on the right and in the middle needs no cache to be ignored
        theirs_logits = theirs(ids, attention_mask=hole).logits
        assert_equal_to_rounding(theirs_logits[1, :3], theirs(ids[1:, :3]).logits[0])


@torch.no_grad()
def test_a_masked_model(tmp_path: Path) -> None:
    ours, theirs = exported(tmp_path / "x", "realformer", token_types=2)
    assert type(theirs) is AddnormForMaskedLM
    ids, types = tokens(), tokens() % 2
    mask = torch.ones_like(ids)
    mask[0, :3], mask[1, 9:] = 0, 0
    output = theirs(ids, attention_mask=mask, token_type_ids=types, labels=torch.where(mask == 1, ids, -100))
    first = ours(ids[:1, 3:], token_types=types[:1, 3:])
    second = ours(ids[1:, :9], token_types=types[1:, :9])
    assert_equal_to_rounding(output.logits[0, 3:], first[0])
    assert_equal_to_rounding(output.logits[1, :9], second[0])
    together = torch.cat((first[0], second[0]))
    expected = torch.nn.functional.cross_entropy(together, torch.cat((ids[0, 3:], ids[1, :9])))
    assert_equal_to_rounding(output.loss, expected)


def test_the_loss_is_that_of_the_next_tokens_and_has_gradients(tmp_path: Path) -> None:
    ours, theirs = exported(tmp_path / "x", scores="sum")
    ids = tokens()
    loss = theirs(ids, labels=ids).loss
    expected = torch.nn.functional.cross_entropy(ours(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert_equal_to_rounding(loss.detach(), expected.detach())
    loss.backward()
    assert all(parameter.grad is not None for parameter in theirs.parameters())
    assert theirs(ids, labels=ids, logits_to_keep=1, return_dict=False)[1].shape == (2, 1, SIZES["vocab"])


@torch.no_grad()
def test_save_pretrained_and_from_pretrained(tmp_path: Path) -> None:
    _, theirs = exported(tmp_path / "x", scores="weighted", tied=True)
    theirs.save_pretrained(tmp_path / "again")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again")
    configs = [one.config.to_dict() for one in (again, theirs)]
    assert {name for name, value in configs[0].items() if value != configs[1][name]} == {"_name_or_path"}
    assert again.get_output_embeddings().weight is again.get_input_embeddings().weight
    assert torch.equal(again(tokens()).logits, theirs(tokens()).logits)
    assert torch.equal(addnorm.load_hf(tmp_path / "again")(tokens()), theirs(tokens()).logits)
    assert (tmp_path / "again" / "modeling_addnorm.py").read_text().count("\n") == 3


def test_a_model_from_a_spec_starts_as_ours() -> None:
    spec = addnorm.preset("gpt2", **SIZES, scores="sum")
    made = AddnormForCausalLM(AddnormConfig(spec=spec)).model.state_dict()
    ours = spec.build(seed=0).state_dict()
    assert made.keys() == ours.keys()
    assert all(torch.equal(made[name], value) for name, value in ours.items())


@torch.no_grad()
def test_bfloat16(tmp_path: Path) -> None:
    ours, _ = exported(tmp_path / "x", scores="sum")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "x", dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in theirs.parameters()} == {torch.bfloat16}
    assert torch.equal(theirs(tokens()).logits, ours.bfloat16()(tokens()))
    expected = addnorm.generate(ours, tokens(seq=4), new_tokens=4)
    assert torch.equal(theirs.generate(tokens(seq=4), max_new_tokens=4, **GREEDY), expected)


def test_the_stub_gives_the_installed_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported(tmp_path / "x", scores="sum")
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    auto_map = json.loads((tmp_path / "x" / "config.json").read_text())["auto_map"]
    for auto, name in auto_map.items():
        found = dynamic_module_utils.get_class_from_dynamic_module(name, str(tmp_path / "x"))
        assert found is {"AutoConfig": AddnormConfig, "AutoModelForCausalLM": AddnormForCausalLM}[auto]


def test_missing_weights_and_plugins_are_named(tmp_path: Path) -> None:
    ours, _ = exported(tmp_path / "x", scores="sum")
    content = json.loads((tmp_path / "x" / "config.json").read_text())
    content["spec"]["depth"] = 3
    (tmp_path / "x" / "config.json").write_text(json.dumps(content))
    for load in (transformers.AutoModelForCausalLM.from_pretrained, addnorm.load_hf):
        with pytest.raises(InputError, match=r"layers\.2\.attention"):
            load(tmp_path / "x")
    addnorm.save_hf(ours, tmp_path / "y", plugins=["damped.py"])
    for load, way in (
        (transformers.AutoModelForCausalLM.from_pretrained, r"addnorm\.hf\.load_plugins"),
        (addnorm.load_hf, r"addnorm\.load_hf\(…, plugins="),
    ):
        with pytest.raises(InputError, match=rf"damped\.py.*{way}"):
            load(tmp_path / "y")
    with pytest.raises(InputError, match="Use AddnormForMaskedLM"):
        AddnormForCausalLM(AddnormConfig(spec=addnorm.preset("realformer", **SIZES)))


def test_a_trainer_takes_one_step(tmp_path: Path) -> None:
    _, theirs = exported(tmp_path / "x", scores="weighted")
    before = {name: value.clone() for name, value in theirs.state_dict().items()}
    rows = [{"input_ids": row, "labels": row} for row in tokens(batch=4)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=1, per_device_train_batch_size=2, report_to=[], use_cpu=True
    )
    result = transformers.Trainer(model=theirs, args=arguments, train_dataset=rows).train()
    assert np.isfinite(result.training_loss)
    assert any(not torch.equal(value, before[name]) for name, value in theirs.state_dict().items())
