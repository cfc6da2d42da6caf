"""The preset `gemma2` in all but size: with the same weights, the logits of Transformers' class; and windows by layer."""

import pytest
import torch
from torch import Tensor

from addnorm import ModelSpec, preset
from addnorm.errors import InputError
from addnorm.model.trace import Trace
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import LAWS, some_tokens, subject

pytestmark = pytest.mark.plain  # Transformers is imported in that session alone

SMALL = {"width": 32, "depth": 4, "heads": 4, "kv_heads": 2, "hidden": 40, "max_seq": 16, "vocab": 11}


def halves(weight: Tensor, heads: int) -> Tensor:
    """Rows of each head in the order of Transformers, which rotates entry i with entry i + half."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def test_its_logits_are_those_of_transformers() -> None:
    configuration = pytest.importorskip("transformers.models.gemma2.configuration_gemma2")
    modeling = pytest.importorskip("transformers.models.gemma2.modeling_gemma2")
    spec = preset("gemma2", **SMALL, windows=[3, None], score_cap=0.5, logit_cap=2.0, init_std=0.3)
    model, tokens = subject(spec), some_tokens(spec)
    config = configuration.Gemma2Config(
        vocab_size=11, hidden_size=32, intermediate_size=40, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=8, max_position_embeddings=16, sliding_window=3,
        attn_logit_softcapping=0.5, final_logit_softcapping=2.0, rms_norm_eps=1e-6, attn_implementation="eager",
    )  # fmt: skip
    theirs = modeling.Gemma2ForCausalLM(config).double().eval()
    weights = {"model.embed_tokens.weight": model.embedding.weight, "model.norm.weight": model.final_norm.weight - 1}
    for number, layer in enumerate(model.layers):
        body, hidden, path = layer.attention.body, layer.feedforward.body, f"model.layers.{number}"
        weights |= {
            f"{path}.input_layernorm.weight": layer.attention.input_norm.weight - 1,
            f"{path}.post_attention_layernorm.weight": layer.attention.output_norm.weight - 1,
            f"{path}.pre_feedforward_layernorm.weight": layer.feedforward.input_norm.weight - 1,
            f"{path}.post_feedforward_layernorm.weight": layer.feedforward.output_norm.weight - 1,
            f"{path}.self_attn.q_proj.weight": halves(body.query.weight, 4),
            f"{path}.self_attn.k_proj.weight": halves(body.key.weight, 2),
            f"{path}.self_attn.v_proj.weight": body.value.weight,
            f"{path}.self_attn.o_proj.weight": body.output.weight,
            f"{path}.mlp.gate_proj.weight": hidden.gate.weight,
            f"{path}.mlp.up_proj.weight": hidden.up.weight,
            f"{path}.mlp.down_proj.weight": hidden.down.weight,
        }
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    assert unexpected == []
    assert {*missing} <= {"lm_head.weight"}  # tied
    with torch.no_grad():
        ours, expected = model(tokens), theirs(input_ids=tokens).logits
        # Their rotation, norms and softmax are computed in float32, in each of the layers; no logit is above two.
        terms = SMALL["depth"] * (SMALL["width"] + SMALL["hidden"])
        torch.testing.assert_close(ours, expected, rtol=0, atol=terms * torch.finfo(torch.float32).eps)
        for change in ({"score_cap": None}, {"windows": (None,)}, {"embedding_factor": "one"}):
            other = preset("gemma2", **(SMALL | {"windows": [3, None], "score_cap": 0.5, "logit_cap": 2.0} | change))
            changed = other.build().double().eval()
            changed.load_state_dict(model.state_dict())
            assert (changed(tokens) - expected).abs().max() > 1e-3, change


@pytest.mark.parametrize("law", ["decodes_with_a_cache", "is_causal"])
@pytest.mark.parametrize("scores", ["own", "sum"])
def test_windows_keep_the_laws(law: str, scores: str) -> None:
    LAWS[law](shrunk(preset("llama", scores=scores, windows=(3, None, 5)), init_std=0.5))


@pytest.mark.parametrize("scores", ["own", "sum"])
def test_every_attention_has_its_window(scores: str) -> None:
    model = subject(shrunk(preset("llama", scores=scores, windows=(3, None)), depth=3, init_std=0.5))
    trace, tokens = Trace(), some_tokens(model.spec)
    with torch.no_grad():
        traced, logits = model(tokens, trace=trace), model(tokens)
    torch.testing.assert_close(traced, logits)
    whole = torch.ones(9, 9).tril().bool()
    for attention, seen in zip(trace.attentions, (whole.triu(-2), whole, whole.triu(-2)), strict=True):
        columns = torch.eye(9).double().expand(2, attention.problem.kv_heads, 9, 9)
        assert torch.equal((attention.apply(columns) > 0).all(1).all(0), seen)


def test_replayed_layers_keep_their_windows() -> None:
    for law in ("decodes_with_a_cache", "is_causal"):
        LAWS[law](shrunk(preset("v3m3_2", windows=(3, None)), depth=3, init_std=0.3))


def test_windows_that_do_not_fit_are_refused() -> None:
    for changes, said in (
        ({"windows": ()}, r"windows: expected whole numbers of at least 1, or null, one at least, got \[\]"),
        ({"windows": (0,)}, r"windows: expected whole numbers of at least 1, .* got \[0\]"),
        ({"windows": (3,), "objective": "masked"}, r"windows: expected \[null\] with objective 'masked', because"),
        ({"windows": (3, None), "attention": "running"}, "attention: running: expected one window for all layers"),
    ):
        with pytest.raises(InputError, match=said):
            ModelSpec(**changes)
