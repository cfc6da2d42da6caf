"""Patches: mechanisms of ours in models of Transformers, made on the spot from configurations with random weights."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from foreign import disturb, in_float64, model, tokens
from torch import Tensor, nn

import addnorm
from addnorm.errors import InputError, UnknownName
from addnorm.model.transformer import Transformer
from addnorm.outside.hugging_face.patching.check import start_of
from addnorm.outside.hugging_face.saving import save_hf
from sampled import sampled

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
GPT2 = {"vocab_size": 50, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 32, "eos_token_id": 0}
DECODERS: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": GROUPED,
    "Qwen2ForCausalLM": GROUPED,
    "MistralForCausalLM": {**GROUPED, "sliding_window": 4},
    "GPT2LMHeadModel": {**GPT2, "bos_token_id": 0},
    "GPTNeoXForCausalLM": {**SIZES, "use_parallel_residual": False},
}
JOINTS: dict[str, dict[str, Any]] = {
    "residual": {"residual": "rezero"},
    "scores": {"scores": "signed"},
    "values": {"values": "first"},
    "all": {"residual": "streams", "scores": "signed", "values": "first"},
}

ALONE = ("residual", "scores", "values")


def decoder(name: str = "LlamaForCausalLM", **changes: Any) -> Any:
    """A random decoder in evaluation mode."""
    cls = getattr(transformers, name)
    settings = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **DECODERS.get(name, GROUPED), **changes}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = cls(cls.config_class(**settings)).eval()
    disturb(made)
    return made


def logits(of: Any, ids: Tensor | None = None) -> Tensor:
    with torch.no_grad():
        found: Tensor = of(tokens() if ids is None else ids).logits
    return found


def move(patch: nn.Module) -> None:
    """Take every parameter of a patch away from its start."""
    random = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in patch.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=random))


@pytest.mark.parametrize(
    ("name", "joints"),
    [(name, JOINTS["all"]) for name in DECODERS] + [("LlamaForCausalLM", JOINTS[one]) for one in ALONE],
)
def test_a_patch_starts_where_the_model_is_and_leaves_nothing_behind(name: str, joints: dict[str, Any]) -> None:
    foreign = decoder(name)
    before, names = logits(foreign), list(foreign.state_dict())
    _, rounding = start_of(foreign)
    patch = addnorm.patch(foreign, **joints)
    assert (logits(foreign) - before).abs().max() <= rounding
    move(patch)
    assert (logits(foreign) - before).abs().max() > 1000 * rounding
    addnorm.unpatch(foreign)
    assert torch.equal(logits(foreign), before)
    assert list(foreign.state_dict()) == names
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in foreign.modules())


@pytest.mark.parametrize(
    ("name", "norm"),
    [
        ("LlamaForCausalLM", "rms"),
        ("Qwen2ForCausalLM", "rms"),
        ("MistralForCausalLM", {"kind": "rms"}),
        ("GPT2LMHeadModel", "layer"),
        ("GPTNeoXForCausalLM", "layer"),
    ],
    ids=str,
)
def test_norms_of_ours_compute_what_the_models_own_do(name: str, norm: Any) -> None:
    foreign = decoder(name)
    before, own = logits(foreign), dict(foreign.named_modules())
    _, rounding = start_of(foreign)
    addnorm.patch(foreign, norm=norm)
    assert (logits(foreign) - before).abs().max() <= rounding
    replaced = [path for path, module in foreign.named_modules() if own.get(path, module) is not module]
    assert len(replaced) == 7  # two branches of three layers, and the last one
    foreign.train()(tokens(), labels=tokens()).loss.backward()
    assert all(foreign.get_submodule(path).weight.grad.any() for path in replaced)
    addnorm.unpatch(foreign.eval())
    assert torch.equal(logits(foreign), before)
    assert dict(foreign.named_modules()) == own


@pytest.mark.parametrize(
    ("preset", "joints"),
    [
        ("gpt2", {"residual": "dense"}),
        ("llama", {"residual": {"kind": "cross", "reads": "one"}, "scores": {"kind": "signed", "window": 2}}),
        ("gpt2", {"residual": "streams", "scores": "signed", "values": "first"}),
        ("llama", {"residual": "streams", "scores": "signed", "values": "first"}),
    ],
    ids=str,
)
def test_away_from_its_start_a_patched_model_is_ours_with_the_same_parameters(
    tmp_path: Path, preset: str, joints: dict[str, Any]
) -> None:
    plain = model(preset, depth=3).double()
    save_hf(plain, tmp_path / "x")
    foreign = in_float64(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "x"))
    patch = addnorm.patch(foreign, **joints)
    move(patch)
    assert isinstance(plain.spec, addnorm.ModelSpec)
    made = addnorm.preset("llama", **{room: patch.specs[room] for room in joints})
    ours = Transformer(replace(plain.spec, **{room: getattr(made, room) for room in joints})).double().eval()
    ours.load_state_dict({**plain.state_dict(), **patch.state_dict()})
    torch.testing.assert_close(logits(foreign), ours(tokens()).detach(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["MistralForCausalLM", "GPT2LMHeadModel"])
def test_generation_with_a_cache_is_exact(name: str) -> None:
    foreign = decoder(name)
    move(addnorm.patch(foreign, **JOINTS["all"]))
    ids = tokens(2, 6)
    mask = torch.ones_like(ids)
    mask[0, :2] = 0
    settings = {"max_new_tokens": 6, "do_sample": False, "output_scores": True, "return_dict_in_generate": True}
    with torch.no_grad():
        with_cache, without = (
            foreign.generate(ids, attention_mask=mask, use_cache=use, **settings) for use in (True, False)
        )
    assert torch.equal(with_cache.sequences, without.sequences)
    _, rounding = start_of(foreign)
    gap = (torch.stack(with_cache.scores) - torch.stack(without.scores)).abs().max()
    assert gap <= rounding


def test_scores_are_computed_by_our_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    from addnorm.outside.hugging_face.patching import attention

    terms: list[int] = []

    def counted(queries: Any, *args: Any, **settings: Any) -> Tensor:
        terms.append(len(queries))
        return addnorm.attend(queries, *args, **settings)

    foreign = decoder()
    addnorm.patch(foreign, scores="signed")
    monkeypatch.setattr(attention, "attend", counted)
    logits(foreign)
    assert terms == [1, 2, 3]


def test_a_patch_is_trained_alone_or_with_the_model() -> None:
    foreign = decoder().train()
    patch = addnorm.patch(foreign, **JOINTS["all"])
    foreign(tokens(), labels=tokens()).loss.backward()
    moved = {
        name for name, parameter in patch.named_parameters() if parameter.grad is not None and parameter.grad.any()
    }
    assert {"scores.weight.1", "scores.weight.2", "values.own", "values.first"} <= moved
    assert any(name.startswith("residual.") for name in moved)
    assert all(
        parameter.grad is not None for name, parameter in foreign.named_parameters() if name.endswith("q_proj.weight")
    )


@pytest.mark.parametrize(
    "joints", sampled(3, [{"scores": "signed", "residual": "rezero"}, {"scores": "signed"}, {"values": "first"}])
)
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "GPT2LMHeadModel", "GPTNeoXForCausalLM", "Qwen3ForCausalLM"])
def test_models_of_one_configuration_are_patched_one_by_one(name: str, joints: dict[str, Any]) -> None:
    first = decoder(name)
    config = first.config
    second = type(first)(config).eval()
    expected = logits(first), logits(second)
    patch = addnorm.patch(first, **joints)
    move(patch)
    assert not torch.equal(logits(first), expected[0])
    assert torch.equal(logits(second), expected[1])
    assert second.config is config
    third = type(first)(config).eval()  # made afterwards
    third.load_state_dict(second.state_dict())
    assert torch.equal(logits(third), expected[1])
    addnorm.patch(second, **joints)
    assert len({id(module.config) for module in first.modules() if hasattr(module, "config")}) == 1
    for each, before in zip((first, second), expected, strict=True):
        addnorm.unpatch(each)
        assert torch.equal(logits(each), before)
        assert each.config.to_dict() == config.to_dict()


def test_a_copy_of_a_patched_model_is_independent() -> None:
    foreign = decoder()
    patch = addnorm.patch(foreign, residual="rezero", scores="signed")
    twin = copy.deepcopy(foreign)
    before = logits(twin)
    move(patch)
    assert torch.equal(logits(twin), before)
    assert not torch.equal(logits(foreign), before)


def test_a_file_holds_a_patch(tmp_path: Path) -> None:
    foreign = decoder()
    foreign.save_pretrained(tmp_path / "base")
    move(addnorm.patch(foreign, residual="rezero", scores="signed", norm="rms"))
    with torch.no_grad():
        foreign.model.norm.weight.mul_(1.5)
    path = addnorm.save_patch(foreign, tmp_path / "small.safetensors")
    assert path.stat().st_size < 10_000
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "base").eval()
    addnorm.load_patch(again, path)
    assert torch.equal(logits(again), logits(foreign))

    deeper = decoder(num_hidden_layers=4)
    before = logits(deeper)
    with pytest.raises(InputError, match=r"small\.safetensors: expected a patch of a model with the layers and sizes"):
        addnorm.load_patch(deeper, path)
    assert torch.equal(logits(deeper), before)
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    for name in ("broken.safetensors", "missing.safetensors", "base/model.safetensors"):
        with pytest.raises(InputError, match=r"expected a file written by addnorm\.save_patch"):
            addnorm.load_patch(deeper, tmp_path / name)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "expected at least one of residual, scores, values and norm"),
        ({"residual": "gate"}, "can start as 'add' and learn from there, got 'gate'. Those that can: .*rezero"),
        ({"residual": {"kind": "rezero", "alpha_init": 0.1}}, r"got 'rezero' with \{'alpha_init': 0.1\}"),
        ({"residual": "cross"}, "expected one read for queries, keys and values"),
        ({"scores": "sum"}, "can start as 'own' .* got 'sum'. Those that can: signed"),
        ({"values": "table"}, "which reads tokens"),
        ({"values": "depth_attention"}, "a mechanism that can start as 'own'"),
        ({"norm": "dyt"}, "expected a norm that computes what LlamaRMSNorm computes.* Those that do: rms"),
    ],
    ids=str,
)
def test_what_cannot_start_neutral_is_refused_and_changes_nothing(asked: dict[str, Any], message: str) -> None:
    foreign = decoder()
    before = logits(foreign)
    with pytest.raises(InputError, match=message):
        addnorm.patch(foreign, **asked)
    assert torch.equal(logits(foreign), before)
    with pytest.raises(InputError, match="expected a patched model"):
        addnorm.unpatch(foreign)


@pytest.mark.parametrize(
    ("name", "settings", "asked", "message"),
    [
        ("PhiForCausalLM", GROUPED, {"residual": "rezero"}, "got branches side by side"),
        ("CohereForCausalLM", GROUPED, {"residual": "rezero"}, "got branches side by side"),
        ("BertForMaskedLM", SIZES, {"residual": "rezero"}, "got one on the stream"),
        ("AlbertForMaskedLM", {**SIZES, "embedding_size": 16}, {"scores": "signed"}, "layers that are one module"),
        ("Gemma2ForCausalLM", {**GROUPED, "head_dim": 8}, {"scores": "signed"}, "got Gemma2Attention with 'softcap'"),
    ],
    ids=lambda value: value if isinstance(value, str) and value[0].isupper() else "",
)
def test_models_that_a_patch_does_not_know(
    name: str, settings: dict[str, Any], asked: dict[str, Any], message: str
) -> None:
    foreign = decoder(name, **settings)
    before = logits(foreign)
    with pytest.raises(InputError, match=message):
        addnorm.patch(foreign, **asked)
    assert torch.equal(logits(foreign), before)


def test_other_mistakes() -> None:
    foreign = decoder()
    with pytest.raises(UnknownName, match="rezero"):
        addnorm.patch(foreign, residual="rezro")
    addnorm.patch(foreign, residual="rezero")
    with pytest.raises(InputError, match="got a patched one"):
        addnorm.patch(foreign, scores="signed")
    foreign.train().activation_checkpointing_enable()
    with pytest.raises(InputError, match="without gradient checkpointing"):
        foreign(tokens())
    with pytest.raises(InputError, match="got one of addnorm"):
        addnorm.patch(model("llama"), residual="rezero")
