"""Patches in every way that the guide promises: generation with a cache, beyond windows, with left padding, in half precision.

Kinds of decoders: sliding and full layers in any order, one window for all layers, none; transformers#37574, #39737, #48510.
"""

from typing import Any

import pytest
import torch
import transformers
from foreign import disturb
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

import addnorm
from addnorm.errors import InputError
from addnorm.outside.hugging_face.patching import attach, check

SIZES: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SLIDING_FIRST = ["sliding_attention", "full_attention"] * 2
FULL_FIRST = SLIDING_FIRST[::-1]
MIXED: dict[str, dict[str, Any]] = {
    "Gemma3ForCausalLM": {"head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8, "layer_types": SLIDING_FIRST},
    "Qwen2ForCausalLM": {"use_sliding_window": True, "sliding_window": 4, "layer_types": FULL_FIRST},
    "Olmo3ForCausalLM": {"sliding_window": 4, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
    "Cohere2ForCausalLM": {"sliding_window": 5, "layer_types": SLIDING_FIRST},
    "MinistralForCausalLM": {"head_dim": 8, "sliding_window": 3, "layer_types": FULL_FIRST},
    "Qwen3ForCausalLM": {"head_dim": 8, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2},
    "SmolLM3ForCausalLM": {"use_sliding_window": True, "sliding_window": 4, "layer_types": FULL_FIRST},
}
UNIFORM: dict[str, dict[str, Any]] = {
    "MistralForCausalLM": {"sliding_window": 4},
    "Starcoder2ForCausalLM": {"sliding_window": 4, "layer_types": ["sliding_attention"] * 4},
    "LlamaForCausalLM": {},
}
ATTENTION: dict[str, Any] = {"scores": "signed", "values": "first"}


def decoder(name: str, **changes: Any) -> Any:
    """A random decoder in evaluation mode."""
    cls = getattr(transformers, name)
    settings = {**SIZES, **(MIXED | UNIFORM)[name], **changes}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = cls(cls.config_class(**settings)).eval()
    disturb(made)
    return made


def move(patch: nn.Module) -> None:
    """Take every parameter of a patch away from its start."""
    random = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in patch.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=random).to(parameter))


def prompts() -> tuple[Tensor, Tensor]:
    """Two rows longer than every window, one with left padding."""
    ids = torch.randint(3, 60, (2, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    return ids, mask


@torch.no_grad()
def generated(foreign: Any, **settings: Any) -> tuple[Tensor, Tensor]:
    """Tokens, and the logits behind them."""
    ids, mask = prompts()
    asked = {"max_new_tokens": 4, "min_new_tokens": 4, "output_logits": True, "return_dict_in_generate": True}
    output = foreign.generate(ids, attention_mask=mask, do_sample=False, **asked, **settings)
    return output.sequences, torch.stack(output.logits)


@pytest.mark.parametrize("name", [*MIXED, *UNIFORM])
def test_generation_beyond_the_window_is_that_without_a_cache(name: str) -> None:
    foreign = decoder(name).double()
    move(addnorm.patch(foreign, **ATTENTION))
    (with_cache, logits), (without, expected) = (generated(foreign, use_cache=use) for use in (True, False))
    assert torch.equal(with_cache, without)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)  # norms compute in float32 whatever the dtype


@pytest.mark.parametrize("joints", [{"scores": {"kind": "signed", "window": 2}}, {"values": "first"}], ids=str)
def test_beams_and_prompts_in_parts_are_exact_as_well(joints: dict[str, Any]) -> None:
    foreign = decoder("Gemma3ForCausalLM").double()
    move(addnorm.patch(foreign, **joints))
    for settings in ({"num_beams": 3}, {"prefill_chunk_size": 5}):
        with_cache, _ = generated(foreign, **settings)
        without, _ = generated(foreign, **{**settings, "use_cache": False, "prefill_chunk_size": None})
        assert torch.equal(with_cache, without), settings


def test_the_model_keeps_its_own_short_caches_without_a_patch() -> None:
    foreign = decoder("Olmo3ForCausalLM")
    before = generated(foreign)
    addnorm.patch(foreign, **ATTENTION)
    addnorm.unpatch(foreign)
    assert foreign.config.sliding_window == 4
    ids, _ = prompts()
    lengths = {layer.keys.shape[-2] for layer in foreign(ids, use_cache=True).past_key_values.layers}
    assert lengths == {3, 9}
    assert all(torch.equal(one, other) for one, other in zip(before, generated(foreign), strict=True))


@torch.no_grad()
def test_a_cache_that_has_lost_positions_is_refused() -> None:
    foreign = decoder("Gemma3ForCausalLM")
    ids, _ = prompts()
    short = foreign(ids[:, :2], use_cache=True).past_key_values
    lost = foreign(ids, use_cache=True).past_key_values
    move(addnorm.patch(foreign, **ATTENTION))
    with pytest.raises(InputError, match=r"past_key_values: expected a DynamicCache .* keeps 4 positions"):
        foreign(ids[:, :1], past_key_values=lost)
    with pytest.raises(InputError, match="got a StaticSlidingWindowLayer"):
        generated(foreign, cache_implementation="static")
    foreign(ids[:, 2:], past_key_values=short)
    assert {layer.keys.shape[-2] for layer in short.layers} == {9}
    again = DynamicCache(config=foreign.config)
    foreign(ids, past_key_values=again)
    assert {layer.keys.shape[-2] for layer in again.layers} == {9}


@pytest.mark.parametrize("name", MIXED)
def test_a_patch_that_fails_with_the_cache_is_refused_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of ordinary length, far beyond the six tokens that a patch is measured with."""
    monkeypatch.setattr(attach, "keep_all_positions", lambda *args: None)
    foreign = decoder(name, sliding_window=64)
    before = generated(foreign)
    with pytest.raises(InputError, match=r"scores and values .* with the cache of "):
        addnorm.patch(foreign, **ATTENTION)
    assert foreign.config.sliding_window == 64
    assert all(torch.equal(one, other) for one, other in zip(before, generated(foreign), strict=True))


class Narrow(nn.Module):
    """A joint that is off in bfloat16 alone."""

    def forward(self, layer: nn.Module, args: Any, output: Any) -> Any:
        return output * 3 if torch.is_autocast_enabled("cpu") else output


def test_a_start_that_holds_in_float32_alone_is_refused() -> None:
    foreign = decoder("LlamaForCausalLM")
    before = check.measure_start(foreign)
    assert [measured.mode.name for measured in before] == ["with left padding", "in bfloat16"]
    check.require_start(foreign, before, "nothing")
    handle = foreign.model.norm.register_forward_hook(Narrow())
    with pytest.raises(InputError, match=r"a change of .* in bfloat16, where rounding explains"):
        check.require_start(foreign, before, "something")
    handle.remove()


def test_a_start_that_ignores_padding_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from addnorm.outside.hugging_face.patching import attention

    monkeypatch.setattr(attention, "_bias", lambda mask, value: torch.zeros_like(mask, dtype=value.dtype))
    with pytest.raises(InputError, match=r"with left padding, where rounding explains"):
        addnorm.patch(decoder("LlamaForCausalLM"), scores="signed")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_models_in_half_precision_are_patched_in_it(dtype: torch.dtype) -> None:
    foreign = decoder("Gemma3ForCausalLM").to(dtype)
    patch = addnorm.patch(foreign, residual="rezero", **ATTENTION)
    assert {parameter.dtype for parameter in patch.parameters()} == {dtype}
    move(patch)
    assert generated(foreign)[0].shape == (2, 13)


def test_a_patch_does_not_move_while_it_is_checked() -> None:
    patch = addnorm.patch(decoder("LlamaForCausalLM"), residual="rezero", scores="signed")
    assert all(bool((parameter == parameter.round()).all()) for parameter in patch.parameters())
