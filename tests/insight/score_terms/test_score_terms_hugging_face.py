"""The four terms of Transformers models with rotary position."""

import numpy as np
import pytest
import torch

from addnorm.anatomy.recording import record
from addnorm.anatomy.structure import find_layers
from addnorm.errors import InputError
from addnorm.insight.score_terms import hugging_face
from addnorm.insight.score_terms.inspect import terms_of_model
from addnorm.insight.score_terms.measured import measure
from addnorm.insight.score_terms.terms import TERMS

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 31,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}


def made(name: str, **changes):
    config = getattr(transformers, f"{name}Config")(**(SIZES | changes))
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith(("q_proj.bias", "k_proj.bias")):
                parameter.normal_()
    return model


def tokens(seq: int = 20) -> torch.Tensor:
    return torch.randint(1, 31, (2, seq), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("Qwen2", {}),
        ("Llama", {"attention_bias": True}),
        ("Llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}),
    ],
)
def test_the_sum_is_the_score_at_every_pair(name: str, changes) -> None:
    model = made(name, **changes).double()
    before = model(input_ids=tokens()).logits
    found = terms_of_model(model, tokens(), label="qwen")
    # Angles are in float32 on both sides, everything else in float64.
    assert found["largest_error"] <= found["rounding"] < 1e-9
    assert len(found["rows"]) == 8
    assert found["q_bias"] == found["k_bias"] == (name == "Qwen2" or "attention_bias" in changes)
    with_bias = [np.abs(row["terms"]["aRb"]["mean"]).max() for row in found["rows"]]
    assert all(value > 0.01 for value in with_bias) == found["q_bias"]
    assert torch.equal(model(input_ids=tokens()).logits, before), "the model attends as before"
    assert not any("forward" in vars(module) for module in model.modules())


def test_scores_against_eager_attention() -> None:
    """Independent of our attention function: log-probabilities of eager attention are the sum up to a number per row."""
    model = made("Qwen2").double()
    model.set_attn_implementation("eager")
    attentions = model(input_ids=tokens(), output_attentions=True).attentions
    for parts, attention in zip(hugging_face.parts_of(model, tokens()), attentions, strict=True):
        (query, a), (key, b) = parts.turned()
        four = [left @ right.mT for left in (query, a) for right in (key, b)]
        scores = sum(four) * parts.scale[:, None, None]
        seen = torch.ones(20, 20, dtype=torch.bool).tril()
        expected = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        # Transformers takes the softmax of eager attention in float32.
        torch.testing.assert_close(attention, expected, rtol=1e-4, atol=1e-6)
    assert model.config._attn_implementation == "eager"


def test_float32_is_held_to_its_own_rounding() -> None:
    found = terms_of_model(made("Qwen2"), tokens(), label="qwen")
    assert 0 < found["largest_error"] <= found["rounding"]


def test_a_norm_on_q_and_k_is_noticed() -> None:
    model = made("Qwen3", head_dim=8).double()
    with pytest.raises(InputError, match="a norm on q or k"):
        terms_of_model(model, tokens(), label="qwen3")
    assert model(input_ids=tokens()).logits.isfinite().all()


@pytest.mark.parametrize("name", ["GPT2", "Bert"])
def test_a_model_without_rotary_position(name: str) -> None:
    config = getattr(transformers, f"{name}Config")(
        **(
            {"n_embd": 16, "n_layer": 1, "n_head": 2}
            if name == "GPT2"
            else {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        )
    )
    model = getattr(transformers, f"{name}Model")(config)
    with pytest.raises(InputError, match="the four terms: expected attention with q_proj"):
        terms_of_model(model, tokens(), label=name)


def test_terms_are_named_once() -> None:
    found = measure(hugging_face.parts_of(made("Qwen2").double(), tokens()), causal=True)
    assert set(found["rows"][0]["terms"]) == {*TERMS, "sum"}


CAPPED = {"head_dim": 8, "attn_logit_softcapping": 0.5, "sliding_window": 5, "query_pre_attn_scalar": 8}
SINKS = {
    "head_dim": 8,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "sliding_window": 5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50.0},
}


@pytest.mark.parametrize(
    ("name", "changes"), [("Gemma2", CAPPED), ("GptOss", SINKS), ("Mistral", {"sliding_window": 5})]
)
def test_later_layers_have_the_queries_of_the_model_itself(name: str, changes) -> None:
    """Whose attention has a cap, sinks or windows: torch's function in its place would change every later layer."""
    model = made(name, **changes)
    if name == "GptOss":
        for layer in model.model.layers:
            torch.nn.init.constant_(layer.self_attn.sinks, 2.0)
    recording, _ = record(model, lambda: model(input_ids=tokens()))
    own = [layer.attentions[0] for layer in find_layers(recording)]
    implementation = model.config._attn_implementation
    for parts, attended in zip(hugging_face.parts_of(model, tokens()), own, strict=True):
        assert torch.equal(parts.attended_query, attended.query)
    assert model.config._attn_implementation == implementation
    described = terms_of_model(model, tokens(), label=name)
    assert described["largest_error"] <= described["rounding"]


def test_an_encoder_has_terms_at_distances_of_both_signs() -> None:
    config = transformers.EuroBertConfig(**SIZES)
    torch.manual_seed(0)
    model = transformers.EuroBertForMaskedLM(config).eval()
    described = terms_of_model(model, tokens(), label="encoder")
    assert described["causal"] is False
    assert min(described["rows"][0]["distances"]) < 0
    assert terms_of_model(made("Llama"), tokens(), label="decoder")["causal"] is True
