"""Rewrites of models stored in bfloat16 and float16: judged in their own format, with the rounding of the stored biases."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
import toys
from torch import nn
from toys import WIDTH, data, seeded, tokens

import addnorm
from addnorm.redundancy import Audit, Certificate
from addnorm.redundancy.rewriting import strip
from sampled import sampled

pytestmark = pytest.mark.compiled

HALVES = (torch.bfloat16, torch.float16)


def encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)


def transformers_model(name: str, config: str, **fields: object) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        transformers = pytest.importorskip("transformers")
        return getattr(transformers, name)(getattr(transformers, config)(**fields))

    return build


MODELS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "encoder layer": (encoder_layer, data(2, 5, 16)),
    "bert": (
        transformers_model(
            "BertForMaskedLM",
            "BertConfig",
            vocab_size=24,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=12,
            max_position_embeddings=16,
        ),
        tokens(2, 5, vocab=24),
    ),
    "gpt2": (
        transformers_model(
            "GPT2LMHeadModel",
            "GPT2Config",
            vocab_size=24,
            n_embd=8,
            n_layer=1,
            n_head=2,
            n_positions=16,
            bos_token_id=0,
            eos_token_id=1,
            use_cache=False,
        ),
        tokens(2, 5, vocab=24),
    ),
    "llama": (
        transformers_model(
            "LlamaForCausalLM",
            "LlamaConfig",
            vocab_size=24,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            intermediate_size=12,
            attention_bias=True,
            bos_token_id=0,
            eos_token_id=1,
            use_cache=False,
        ),
        tokens(2, 5, vocab=24),
    ),
}


def built(name: str, dtype: torch.dtype) -> tuple[nn.Module, torch.Tensor]:
    build, inputs = MODELS[name]
    model = seeded(build).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return model.to(dtype), inputs.to(dtype) if inputs.is_floating_point() else inputs


@cache
def audited(name: str, dtype: torch.dtype) -> tuple[nn.Module, torch.Tensor, Audit]:
    """A model, its inputs and its audit, shared by the tests below, none of which changes the model."""
    model, inputs = built(name, dtype)
    return model, inputs, addnorm.audit(model, inputs, methods="static")


BOTH_FORMATS = [("encoder layer", dtype) for dtype in HALVES]
ONE_FORMAT = [("bert", torch.bfloat16), ("gpt2", torch.float16), ("llama", torch.bfloat16)]
"""The format decides how numbers are stored, the class what is folded: one class meets both formats, and the soak all."""
OTHERS = [(name, dtype) for name in MODELS for dtype in HALVES if (name, dtype) not in BOTH_FORMATS + ONE_FORMAT]


def rows(certificate: Certificate) -> list[tuple[str, str]]:
    return [(each.dtype, each.stored) for each in certificate.compared]


@pytest.mark.parametrize(
    ("name", "dtype"),
    sampled(3, BOTH_FORMATS + ONE_FORMAT) + [pytest.param(*other, marks=pytest.mark.soak) for other in OTHERS],
)
def test_a_half_precision_model_is_certified_in_its_own_format(name: str, dtype: torch.dtype) -> None:
    model, inputs, audit = audited(name, dtype)
    stripped, certificate = audit.strip()
    own = str(dtype).removeprefix("torch.")
    assert certificate.passed, certificate.compared
    assert rows(certificate) == [("float64", ""), ("float64", own), (own, "")]
    assert not any(each.skipped for each in certificate.compared)
    assert certificate.changed
    assert {each.dtype for each in stripped.parameters()} == {dtype}
    exact, stored, _ = certificate.compared
    # Storage does round: without its rounding in the bound the same file would have failed.
    assert exact.bound < stored.difference <= stored.bound
    again = addnorm.equivalent(model, stripped, inputs)
    assert again, again


@pytest.mark.parametrize("dtype", HALVES)
def test_a_wrong_fold_fails_in_half_precision(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    """Planted fault: the absorbing bias is wrong by one percent, which bfloat16 itself would hide in the output."""
    honest = strip.plan_removals

    def careless(*args: object, **kwargs: object) -> object:
        planned = honest(*args, **kwargs)
        planned.values["o.bias"].mul_(1.01)
        return planned

    monkeypatch.setattr(strip, "plan_removals", careless)
    model = seeded(toys.Attention).to(dtype)
    _, certificate = addnorm.audit(model, data(2, 4, WIDTH).to(dtype), methods="numeric").strip()
    assert not certificate.compared[0].passed
    assert not certificate.passed


@pytest.mark.parametrize("name", sampled(2, ["bert", "gpt2"]))
def test_absorbing_biases_can_stay_in_float32(name: str) -> None:
    """The stripped model runs in bfloat16, its state dict has the same names, and its stored numbers round less."""
    _, inputs, audit = audited(name, torch.bfloat16)
    rounded_model, rounded = audit.strip()
    precise_model, precise = audit.strip(keep_float32_biases=True)
    assert rounded.passed
    assert precise.passed
    assert set(precise.float32) == set(precise.changed)
    parameters = dict(precise_model.named_parameters())
    assert {name for name, each in parameters.items() if each.dtype == torch.float32} == set(precise.float32)
    assert precise_model.state_dict().keys() == rounded_model.state_dict().keys()
    with torch.no_grad():
        logits = precise_model(inputs).logits
    assert logits.dtype == torch.bfloat16
    stored = [each.compared[1] for each in (rounded, precise)]
    assert stored[1].difference < stored[1].bound < stored[0].difference


@pytest.mark.thorough
def test_a_transfer_keeps_float32_biases() -> None:
    transformers = pytest.importorskip("transformers")

    def bert(depth: int) -> nn.Module:
        return transformers.BertModel(
            transformers.BertConfig(
                vocab_size=24,
                hidden_size=8,
                num_hidden_layers=depth,
                num_attention_heads=2,
                intermediate_size=12,
                max_position_embeddings=16,
                hidden_dropout_prob=0.0,
            ),
            add_pooling_layer=False,
        ).eval()

    small, full = seeded(bert, 2), seeded(bert, 3).to(torch.bfloat16)
    inputs = tokens(2, 5, vocab=24)
    audit = addnorm.audit(small, inputs, methods="static")
    for keep in (False, True):
        stripped, certificate = audit.transfer(full, inputs, keep_float32_biases=keep)
        assert certificate.passed, certificate.compared
        assert rows(certificate) == [("float64", ""), ("float64", "bfloat16"), ("bfloat16", "")]
        assert set(certificate.float32) == (set(certificate.changed) if keep else set())
        with torch.no_grad():
            assert stripped(inputs).last_hidden_state.dtype == torch.bfloat16
    assert {each.dtype for each in full.parameters()} == {torch.bfloat16}


def test_biases_that_a_fused_kernel_reads_stay_in_the_models_format() -> None:
    _, _, audit = audited("encoder layer", torch.bfloat16)
    stripped, certificate = audit.strip(keep_float32_biases=True)
    assert certificate.passed
    assert certificate.float32 == ()
    assert {each.dtype for each in stripped.parameters()} == {torch.bfloat16}
