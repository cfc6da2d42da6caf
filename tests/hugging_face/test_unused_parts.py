"""Checkpoints with a field or a tensor that the table of their class does not read: equal logits, or a refusal by name.

Kinds: another head or bias than the tied one (transformers#42612, vllm#53170), buffers, spellings of rotary settings, fields of
other classes, fields that do not act, files beside the weights.
"""

import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from foreign import assert_equal_to_rounding, disturb, tokens
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import GenerationConfig

import addnorm
import addnorm.hf
from addnorm.errors import InputError
from addnorm.insight.extrapolation.checkpoint import extrapolate_checkpoint
from addnorm.outside.hugging_face.classes import CLASSES
from addnorm.outside.hugging_face.conversion import spec_of
from addnorm.outside.hugging_face.loading import can_load
from addnorm.outside.hugging_face.unused import _GENERATION, HARMLESS
from addnorm.outside.targets import resolve
from addnorm.outside.targets.checkpoint import load_checkpoint

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
}
ALL_HEADS = {name: size for name, size in SIZES.items() if name != "num_key_value_heads"}
GPT2 = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 16}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", SIZES),
    "qwen2": ("Qwen2ForCausalLM", SIZES),
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gpt_neox": ("GPTNeoXForCausalLM", {**ALL_HEADS, "num_attention_heads": 2}),
    "bert": ("BertForMaskedLM", ALL_HEADS),
}
HEAD = {
    "llama": "lm_head.weight",
    "qwen2": "lm_head.weight",
    "gpt2": "lm_head.weight",
    "gpt_neox": "embed_out.weight",
    "bert": "cls.predictions.decoder.weight",
}


def saved(folder: Path, kind: str, **settings: Any) -> Any:
    """Save a random model of a kind, and return it."""
    name, sizes = KINDS[kind]
    cls = getattr(transformers, name)
    foreign = cls(cls.config_class(**{**sizes, **settings})).eval()
    disturb(foreign)
    foreign.tie_weights()
    foreign.save_pretrained(folder)
    return foreign


def rewrite(folder: Path, changes: dict[str, Any]) -> None:
    """Set fields of config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def add(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Set tensors in the file of weights."""
    path = folder / "model.safetensors"
    save_file({name: value.contiguous() for name, value in (load_file(path) | tensors).items()}, path, {"format": "pt"})


@torch.no_grad()
def require_equal(folder: Path, kind: str) -> None:
    """Compare our logits of a folder with those of the class."""
    again = getattr(transformers, KINDS[kind][0]).from_pretrained(folder).eval()
    assert_equal_to_rounding(addnorm.load_hf(folder)(tokens()), again(tokens()).logits)


# --- tensors


@pytest.mark.parametrize("kind", HEAD)
def test_a_tied_head_is_the_embedding_or_refused(kind: str, tmp_path: Path) -> None:
    foreign = saved(tmp_path, kind, tie_word_embeddings=True)
    table = foreign.get_input_embeddings().weight.detach()
    add(tmp_path, {HEAD[kind]: table.clone()})
    require_equal(tmp_path, kind)
    other = table.clone()
    other[7, 3] += 1e-3
    add(tmp_path, {HEAD[kind]: other})
    text = tmp_path / "text.json"
    text.write_text("[1, 2, 3]")
    for load in (
        lambda: addnorm.load_hf(tmp_path),
        lambda: addnorm.inspect(tmp_path, text=text),
        lambda: extrapolate_checkpoint(tmp_path, text),
    ):
        with pytest.raises(InputError, match=rf"{re.escape(HEAD[kind])}: expected the values of .* ties the two, got"):
            load()
    rewrite(tmp_path, {"tie_word_embeddings": False})
    if kind == "bert":
        add(
            tmp_path,
            {"cls.predictions.decoder.bias": load_file(tmp_path / "model.safetensors")["cls.predictions.bias"]},
        )
    require_equal(tmp_path, kind)
    assert not addnorm.load_hf(tmp_path).spec.tied


def test_the_two_names_of_berts_bias_agree_if_it_is_tied(tmp_path: Path) -> None:
    saved(tmp_path, "bert")
    bias = load_file(tmp_path / "model.safetensors")["cls.predictions.bias"]
    add(tmp_path, {"cls.predictions.decoder.bias": bias})
    require_equal(tmp_path, "bert")
    add(tmp_path, {"cls.predictions.decoder.bias": bias + 1})
    with pytest.raises(InputError, match=r"decoder\.bias: expected the values of cls\.predictions\.bias"):
        addnorm.load_hf(tmp_path)


FREQUENCIES = 10_000.0 ** (-torch.arange(0, 4, 2) / 4)
BUFFERS: dict[str, tuple[str, str, Tensor, Tensor | None]] = {
    "llama": ("llama", "model.layers.0.self_attn.rotary_emb.inv_freq", FREQUENCIES, FREQUENCIES / 2),
    "qwen2, once, in bfloat16": ("qwen2", "model.rotary_emb.inv_freq", FREQUENCIES.bfloat16(), FREQUENCIES[:1]),
    "gpt_neox": ("gpt_neox", "gpt_neox.layers.1.attention.rotary_emb.inv_freq", FREQUENCIES, FREQUENCIES * 1.01),
    "gpt_neox's mask": (
        "gpt_neox",
        "gpt_neox.layers.0.attention.bias",
        torch.ones(1, 1, 16, 16, dtype=torch.bool).tril(),
        torch.ones(1, 1, 16, 16, dtype=torch.bool).tril().triu(-4),
    ),
    "gpt2's mask": ("gpt2", "transformer.h.0.attn.bias", torch.ones(1, 1, 16, 16).tril(), torch.ones(48)),
    "gpt2's number": ("gpt2", "transformer.h.1.attn.masked_bias", torch.tensor(-1e4), torch.zeros(16)),
    "bert": ("bert", "bert.embeddings.position_ids", torch.arange(16)[None], torch.arange(16).flip(0)[None]),
    "bert's pooler": ("bert", "bert.pooler.dense.weight", torch.ones(16, 16), None),
}


@pytest.mark.parametrize("case", BUFFERS)
def test_a_buffer_is_what_the_class_computes_or_refused(case: str, tmp_path: Path) -> None:
    kind, name, usual, other = BUFFERS[case]
    settings = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}
    saved(tmp_path, kind, **(settings if kind == "gpt_neox" else {}))
    add(tmp_path, {name: usual})
    require_equal(tmp_path, kind)
    if other is not None:
        add(tmp_path, {name: other})
        with pytest.raises(InputError, match=rf"{re.escape(name)}: expected .* computes from config\.json, got other"):
            addnorm.load_hf(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.2.mlp.up_proj.weight",
        "model.layers.0.self_attn.q_proj.lora_A.weight",
        "model.layers.0.self_attn.o_proj.bias",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.mlp.gate_proj.weight_scale_inv",
        "model.mtp.0.embed_tokens.weight",
        "lm_head.bias",
        "embed_out.weight",
    ],
)
def test_a_tensor_that_nothing_reads_is_refused(name: str, tmp_path: Path) -> None:
    saved(tmp_path, "llama")
    add(tmp_path, {name: torch.ones(16)})
    with pytest.raises(InputError, match=rf"got also {re.escape(name)}"):
        addnorm.load_hf(tmp_path)


# --- files


def test_files_beside_the_weights_are_read_or_refused(tmp_path: Path) -> None:
    foreign = saved(tmp_path, "llama")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(InputError, match=r"adapter_config\.json: expected weights without an adapter"):
        addnorm.load_hf(tmp_path)
    (tmp_path / "adapter_config.json").unlink()
    weights = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"weight_map": {**dict.fromkeys(weights, "a.safetensors"), "lm_head.weight": "b.safetensors"}})
    )
    save_file(weights, tmp_path / "a.safetensors")
    save_file({"lm_head.weight": weights["lm_head.weight"] + 1}, tmp_path / "b.safetensors")
    with pytest.raises(InputError, match=r"b\.safetensors: lm_head\.weight: expected it in one file .* got it in two"):
        addnorm.load_hf(tmp_path)
    save_file({"model.norm.bias": torch.zeros(16)}, tmp_path / "b.safetensors")
    with pytest.raises(InputError, match=r"got also model\.norm\.bias"):
        addnorm.load_hf(tmp_path)
    index.write_text(
        json.dumps({"weight_map": {**dict.fromkeys(weights, "a.safetensors"), "lm_head.bias": "a.safetensors"}})
    )
    with pytest.raises(InputError, match=r"\$\.weight_map: expected tensors of its files, got also lm_head\.bias"):
        addnorm.load_hf(tmp_path)
    index.unlink()
    torch.save({"model": foreign.state_dict()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pytorch_model\.bin: expected tensors by name, got other contents"):
        addnorm.load_hf(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8, torch.uint8], ids=str)
def test_narrow_numbers_are_quantised_weights(dtype: torch.dtype, tmp_path: Path) -> None:
    saved(tmp_path, "qwen2")
    name = "model.layers.0.mlp.up_proj.weight"
    add(tmp_path, {name: load_file(tmp_path / "model.safetensors")[name].to(dtype)})
    both_refuse(tmp_path, r"expected numbers of 16 bits or more, got .*: quantised weights")


@pytest.mark.parametrize(
    ("kind", "name", "number", "dtype"),
    [
        ("llama", "model.layers.1.self_attn.q_proj.weight", float("nan"), torch.float32),
        ("qwen2", "model.layers.0.self_attn.k_proj.bias", float("-inf"), torch.float32),
        ("gpt2", "transformer.wte.weight", float("nan"), torch.bfloat16),
        ("gpt_neox", "gpt_neox.final_layer_norm.bias", float("inf"), torch.float16),
        ("bert", "bert.embeddings.LayerNorm.weight", float("nan"), torch.float32),
    ],
)
def test_a_number_that_is_not_finite_is_named(
    kind: str, name: str, number: float, dtype: torch.dtype, tmp_path: Path
) -> None:
    saved(tmp_path, kind).to(dtype).save_pretrained(tmp_path)
    tensor = load_file(tmp_path / "model.safetensors")[name]
    tensor.view(-1)[1] = number
    add(tmp_path, {name: tensor})
    for load in (addnorm.load_hf, load_checkpoint):  # the second is that of `inspect` of any class
        with pytest.raises(InputError, match=rf"{name}: expected finite numbers, got .* in 1 of {tensor.numel()}\."):
            load(tmp_path)


def test_a_shipped_class_with_a_number_that_is_not_finite_is_named(tmp_path: Path) -> None:
    # torch's attention gives rows of zeros where scores are NaN, so that such a model has finite logits.
    foreign = transformers.SmolLM3ForCausalLM(transformers.SmolLM3Config(**SIZES, pad_token_id=0))
    foreign.model.layers[1].self_attn.q_proj.weight.data[0, 0] = float("nan")
    foreign.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"q_proj\.weight: expected finite numbers"):
        addnorm.load_hf(tmp_path)


@pytest.mark.parametrize(
    ("cls", "fields", "unread"),
    [
        ("MistralForCausalLM", {"sliding_windw": 4}, ["sliding_windw"]),
        ("MistralForCausalLM", {"attn_logit_softcapping": 5.0, "unsloth_version": "1"}, ["attn_logit_softcapping"]),
        ("LlamaForCausalLM", {"rope_parameters": None, "rope_theta": 5e5, "torch_dtype": "float32"}, []),
        ("LlamaForCausalLM", {"rope_theta": 5e5, "num_labels": 2}, ["rope_theta"]),  # rope_parameters has another one
        (
            "LlamaForCausalLM",
            {"rope_scalin": {"rope_type": "linear"}, "embed_scale": 2.0},
            ["rope_scalin", "embed_scale"],
        ),
        ("Gemma2ForCausalLM", {"final_logit_softcap": 9.0}, ["final_logit_softcap"]),
        ("DebertaV2ForMaskedLM", {"position_buckets": 8, "share_att_keys": True}, ["share_att_keys"]),
    ],
)
def test_a_field_that_a_class_does_not_read_is_named(
    cls: str, fields: dict[str, Any], unread: list[str], tmp_path: Path
) -> None:
    model = getattr(transformers, cls)
    sizes = {**SIZES, "head_dim": 4} if cls.startswith("Gemma") else ALL_HEADS if cls.startswith("Deb") else SIZES
    model(model.config_class(**sizes)).save_pretrained(tmp_path)
    rewrite(tmp_path, fields)
    notes = [note for note in resolve(tmp_path).notes if "config.json" in note]
    assert len(notes) == bool(unread)
    for note in notes:
        assert f"got {', '.join(unread)}, which neither it nor the class reads" in note


def test_a_field_of_a_part_is_named(tmp_path: Path) -> None:
    parts = {f"{part}_config": {**ALL_HEADS, "projection_dim": 8} for part in ("text", "vision")}
    parts["vision_config"] |= {"image_size": 8, "patch_size": 4}
    transformers.CLIPModel(transformers.CLIPConfig(**parts, projection_dim=8)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    rewrite(tmp_path, {"vision_config": config["vision_config"] | {"patch_sizes": 2}})
    assert any("got vision_config.patch_sizes, which" in note for note in resolve(tmp_path).notes)


def both_refuse(folder: Path, words: str) -> None:
    """Require one line with these words from `load_hf` and from `addnorm audit`, which loads by the class."""
    for load in (addnorm.load_hf, resolve):
        with pytest.raises(InputError, match=words) as raised:
            load(folder)
        assert "\n" not in str(raised.value)


WRITTEN: dict[str, tuple[Callable[[str], str], str]] = {
    "compiled": (lambda name: f"_orig_mod.{name}", "contain '_orig_mod', as torch.compile writes them"),
    "data parallel": (lambda name: f"module.{name}", "contain 'module', as DataParallel"),
    "sharded layers": (
        lambda name: re.sub(r"(layers\.1)\.", r"\1._fsdp_wrapped_module.", name),
        "contain '_fsdp_wrapped_module'",
    ),
    "adapted": (lambda name: f"base_model.model.{name}", "weights of an adapter: merge it"),
    "one adapted matrix": (lambda name: name.replace("q_proj.", "q_proj.base_layer."), "weights of an adapter: merge"),
    "GPTQ": (lambda name: name.replace("up_proj.weight", "up_proj.qweight"), "quantised: give the checkpoint"),
    "packed": (lambda name: name.replace("o_proj.weight", "o_proj.weight_packed"), "quantised: give the checkpoint"),
    "another layer": (lambda name: name.replace("layers.1.", "layers.2."), "got none"),
    "no head": (lambda name: name.replace("lm_head", "model.head"), '"tie_word_embeddings": true'),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_names_tell_why_weights_are_missing(case: str, tmp_path: Path) -> None:
    saved(tmp_path, "llama")
    file = tmp_path / "model.safetensors"
    rename, words = WRITTEN[case]
    save_file({rename(name): tensor for name, tensor in load_file(file).items()}, file, {"format": "pt"})
    both_refuse(tmp_path, words)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.k_proj.bias",
        "model.layers.1.mlp.up_proj.weight_scale_inv",
        "model.layers.0.self_attn.q_proj.lora_A.weight",
        "model.layers.1.mlp.down_proj.SCB",
        "model.layers.2.mlp.up_proj.weight",
        "model.norm.bias",
        "lm_head.bias",
    ],
)
def test_a_number_of_a_module_that_the_class_has_is_refused_by_audits(name: str, tmp_path: Path) -> None:
    """`attention_bias` that config.json does not switch on, a scale, a layer more: the audit's model was another one."""
    saved(tmp_path, "llama")
    add(tmp_path, {name: torch.ones(16, 2)})
    with pytest.raises(
        InputError, match=rf"{re.escape(name)}: expected a weight of LlamaForCausalLM with the settings"
    ):
        resolve(tmp_path)


def test_two_sets_of_weights_are_refused(tmp_path: Path) -> None:
    """Transformers reads the single file, vLLM those of the index."""
    saved(tmp_path, "llama")
    weights = load_file(tmp_path / "model.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(weights, "model.safetensors")}))
    require_equal(tmp_path, "llama")
    save_file(weights, tmp_path / "a.safetensors", {"format": "pt"})
    index.write_text(json.dumps({"weight_map": dict.fromkeys(weights, "a.safetensors")}))
    both_refuse(tmp_path, "expected weights once, got model.safetensors and the files of model.safetensors.index.json")


DAMAGED: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "a pointer": ("model.safetensors", lambda _: b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "config.json, a pointer": (
        "config.json",
        lambda _: b"version https://git-lfs.github.com/spec/v1\n",
        "git lfs pull",
    ),
    "cut off": ("model.safetensors", lambda content: content[:-100], "not fully covered.* Copy the file again"),
    "empty": ("model.safetensors", lambda _: b"", "header too small.* Copy the file again"),
    "config.json, cut off": ("config.json", lambda content: content[:-9], "expected JSON.* Copy the file again"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_one_line(case: str, tmp_path: Path) -> None:
    saved(tmp_path, "llama")
    name, damage, words = DAMAGED[case]
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    both_refuse(tmp_path, words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda model: model, "pickled Python objects, which addnorm does not execute"),
        (lambda model: {"state_dict": model.state_dict(), "epoch": 3}, "got other contents: state_dict, epoch"),
        (lambda model: list(model.state_dict().values()), "got other contents"),
    ],
)
def test_a_torch_file_holds_tensors_alone(content: Callable[[Any], Any], words: str, tmp_path: Path) -> None:
    foreign = saved(tmp_path, "llama")
    (tmp_path / "model.safetensors").unlink()
    torch.save(content(foreign), tmp_path / "pytorch_model.bin")
    both_refuse(tmp_path, words)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_audits_take_the_type_of_the_weights(dtype: str, tmp_path: Path) -> None:
    """config.json may name a narrower one than the file holds, to which Transformers rounds."""
    foreign = saved(tmp_path, "llama")
    rewrite(tmp_path, {"dtype": dtype})
    model = resolve(tmp_path).model
    assert all(torch.equal(own, theirs) for own, theirs in zip(model.parameters(), foreign.parameters(), strict=True))
    add(tmp_path, {name: tensor.to(getattr(torch, dtype)) for name, tensor in foreign.state_dict().items()})
    assert next(resolve(tmp_path).model.parameters()).dtype == getattr(torch, dtype)


def own(folder: Path, **changes: Any) -> Any:
    """Export a model of a class of this library."""
    sizes = {"vocab": 50, "width": 16, "depth": 2, "heads": 4, "hidden": 24, "max_seq": 16}
    model = addnorm.preset("llama", **sizes, scores="sum", tied=True, **changes).build(seed=0)
    addnorm.save_hf(model, folder)
    return model


def test_an_own_checkpoint_with_another_head_is_refused_by_both_loaders(tmp_path: Path) -> None:
    model = own(tmp_path / "x")
    add(tmp_path / "x", {"model.head.weight": model.embedding.weight.detach().clone()})
    for load in (addnorm.load_hf, addnorm.hf.AddnormForCausalLM.from_pretrained):
        assert load(tmp_path / "x") is not None
    add(tmp_path / "x", {"model.head.weight": model.embedding.weight.detach() + 1})
    for load in (addnorm.load_hf, addnorm.hf.AddnormForCausalLM.from_pretrained):
        with pytest.raises(InputError, match=r"model\.head\.weight: expected the values of model\.embedding\.weight"):
            load(tmp_path / "x")
    add(tmp_path / "x", {"embedding.weight": model.embedding.weight.detach() + 1})
    with pytest.raises(InputError, match=r"expected embedding\.weight once"):
        addnorm.load_hf(tmp_path / "x")


@pytest.mark.parametrize(("field", "value"), [("tie_word_embeddings", False), ("num_attention_heads", 2)])
def test_fields_beside_the_spec_say_what_it_says(field: str, value: Any, tmp_path: Path) -> None:
    own(tmp_path / "x")
    rewrite(tmp_path / "x", {field: value})
    for load in (addnorm.load_hf, addnorm.hf.AddnormForCausalLM.from_pretrained):
        with pytest.raises(InputError, match=rf"\$\.{field}: expected .* as in \$\.spec"):
            load(tmp_path / "x")


def test_a_tied_model_with_another_head_is_not_written(tmp_path: Path) -> None:
    model = own(tmp_path / "x")
    model.head.weight = torch.nn.Parameter(model.embedding.weight.detach() + 1)
    with pytest.raises(InputError, match=r"save_hf: expected head\.weight equal to embedding\.weight"):
        addnorm.save_hf(model, tmp_path / "y")


# --- fields of config.json

EQUAL: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"rope_parameters": None, "rope_scaling": {"type": "default"}, "rope_theta": 300.0}),
    ("llama", {"rope_parameters": None, "rope_scaling": {"rope_type": "default", "rope_theta": 300.0}}),
    ("qwen2", {"rope_parameters": {"type": "default"}, "rope_theta": 300}),
    ("qwen2", {"rope_parameters": {}, "rope_scaling": {}, "rope_theta": 300.0}),
    ("qwen2", {"sliding_window": 4, "max_window_layers": 1, "use_sliding_window": False, "use_mrope": False}),
    ("qwen2", {"layer_types": ["full_attention", "attention"]}),
    ("llama", {"rope_parameters": {"rope_theta": 9.0, "partial_rotary_factor": 1.0}, "rope_interleaved": False}),
    ("gpt_neox", {"rope_parameters": None, "rotary_emb_base": 300, "rotary_pct": 0.5, "rope_theta": 300.0}),
    ("gpt_neox", {"rope_parameters": {"partial_rotary_factor": 0.5}}),
    ("gpt_neox", {"rope_parameters": {"rope_theta": 50.0}, "rotary_pct": 0.5, "hidden_act": "gelu_fast"}),
    ("gpt_neox", {"attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0}),
    ("gpt2", {"hidden_size": 16, "num_hidden_layers": 2, "n_ctx": 1024, "summary_type": "cls_index"}),
    ("bert", {"chunk_size_feed_forward": 3}),
    ("bert", {"directionality": "bidi", "pooler_type": "first_token_transform", "position_embedding_type": "absolute"}),
    (
        "llama",
        {"hidden_act": "swish", "pretraining_tp": 2, "torch_dtype": "float16", "temperature": 0.6, "head_dim": 4},
    ),
]
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("llama", {"rope_parameters": {"type": "linear", "factor": 2.0}}, "rope_parameters.type"),
    ("qwen2", {"rope_parameters": {"rope_type": "default", "type": "yarn", "factor": 2.0}}, "rope_parameters.type"),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling.type"),
    ("gpt_neox", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_scaling.rope_type"),
    ("llama", {"rope_scaling": {"rope_type": "default"}}, "rope_scaling"),
    ("llama", {"rope_scaling": "linear"}, "rope_scaling"),
    ("llama", {"rope_parameters": {"factor": 2.0}}, "rope_parameters.factor"),
    ("llama", {"rope_parameters": {"full_attention": {"rope_theta": 5.0}}}, "rope_parameters.full_attention"),
    ("llama", {"rope_theta": 5.0}, "rope_theta"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ("qwen2", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "rope_parameters.partial_rotary_factor"),
    ("gpt_neox", {"rope_parameters": None, "rope_theta": 300.0}, "rope_theta"),
    ("gpt_neox", {"rope_parameters": {"partial_rotary_factor": 0.5}, "rotary_pct": 1.0}, "rotary_pct"),
    ("gpt2", {"n_embd": 16, "hidden_size": 32}, "n_embd"),
    ("qwen2", {"layer_types": ["sliding_attention", "full_attention"]}, "layer_types"),
    ("llama", {"sliding_window": 4}, "sliding_window"),
    ("llama", {"is_causal": False}, "is_causal"),
    ("gpt_neox", {"is_encoder_decoder": True}, "is_encoder_decoder"),
    ("llama", {"rope_interleaved": True}, "rope_interleaved"),
    ("qwen2", {"use_mrope": True}, "use_mrope"),
    ("llama", {"per_layer_config": {"0": {"intermediate_size": 12}}}, "per_layer_config"),
    ("llama", {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}}, "auto_map"),
    ("llama", {"logit_scale": 0.5}, "logit_scale"),
    ("qwen2", {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    ("llama", {"embedding_multiplier": 12.0}, "embedding_multiplier"),
    ("llama", {"use_qk_norm": True}, "use_qk_norm"),
    ("llama", {"use_rope": False}, "use_rope"),
    ("gpt2", {"layer_norm_eps": 1e-3}, "layer_norm_eps"),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
    ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights"),
    ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
    ("bert", {"is_decoder": True}, "is_decoder"),
    ("bert", {"embedding_size": 8}, "embedding_size"),
    ("bert", {"hidden_act": ["gelu"]}, "hidden_act"),
]


@pytest.mark.parametrize(("kind", "changes"), EQUAL, ids=str)
def test_spellings_are_read_as_transformers_reads_them(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    saved(tmp_path, kind)
    rewrite(tmp_path, changes)
    require_equal(tmp_path, kind)


@pytest.mark.parametrize(("kind", "changes", "field"), REFUSED, ids=str)
def test_a_field_that_may_act_is_refused_by_name(
    kind: str, changes: dict[str, Any], field: str, tmp_path: Path
) -> None:
    saved(tmp_path, kind)
    rewrite(tmp_path, changes)
    with pytest.raises(InputError, match=rf"config\.json: \$\.{re.escape(field)}: expected"):
        addnorm.load_hf(tmp_path)
    assert not can_load(tmp_path)  # inspect measures it by the class of Transformers


def test_a_misspelt_field_is_corrected(tmp_path: Path) -> None:
    saved(tmp_path, "llama")
    rewrite(tmp_path, {"rms_norm_epsilon": 1e-2})
    with pytest.raises(InputError, match=r"got rms_norm_epsilon = 0\.01, .* Did you mean 'rms_norm_eps'"):
        addnorm.load_hf(tmp_path)


VALUES: tuple[Any, ...] = (True, 1, 3, "mean", [1], {"0": "name"})
NOT_ALONE = {
    "chunk_size_feed_forward",
    "architectures",
    "model_type",
    "dtype",
    "torch_dtype",
    "_attn_implementation",
    "attn_implementation",
}
"""Fields that choose the class, its precision or its kernel; several values of them are in the other tests."""


def accepted(config_class: Any, sizes: dict[str, Any], field: str, value: Any) -> bool:
    """True for a value that the class does not refuse itself."""
    try:
        config_class(**sizes, **{field: value})
    except (TypeError, ValueError, AttributeError, StrictDataclassError):
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_harmless_fields_leave_the_logits_of_the_installed_class(kind: str) -> None:
    """Fields of the class and of the lists together, with values of every type. It removes those of `generate` itself."""
    name, sizes = KINDS[kind]
    cls, table = getattr(transformers, name), CLASSES.class_of(kind)
    patterns = (*HARMLESS, *table.harmless)
    named = {field.name for field in fields(cls.config_class)} | {
        pattern for pattern in patterns if pattern.isidentifier()
    }
    named -= {*_GENERATION, *NOT_ALONE, *(constant.theirs for constant in table.constants)}
    harmless = sorted(field for field in named if any(re.fullmatch(pattern, field) for pattern in patterns))
    plain = cls(cls.config_class(**sizes)).eval()
    disturb(plain)
    expected, tried = plain(tokens()).logits.detach(), set[str]()
    for value in VALUES:
        given = {field: value for field in harmless if accepted(cls.config_class, sizes, field, value)}
        tried |= given.keys()
        other = cls(cls.config_class(**sizes, **given)).eval()
        other.load_state_dict(plain.state_dict())
        logits = other(tokens(), return_dict=True, output_hidden_states=False, output_attentions=False).logits
        torch.testing.assert_close(logits, expected, msg=f"{value}: {sorted(given)}")
    assert tried == set(harmless)


def test_every_field_of_the_installed_classes_is_known() -> None:
    for kind, (name, sizes) in KINDS.items():
        config = (
            getattr(transformers, name).config_class(**sizes).to_dict()
            | GenerationConfig._get_default_generation_params()
        )
        spec_of(CLASSES.class_of(kind), config, "config.json")
    assert set(_GENERATION) | {"forced_bos_token_id", "forced_eos_token_id"} == {
        *GenerationConfig._get_default_generation_params()
    }
