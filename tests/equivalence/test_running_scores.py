"""A running sum of scores is the same model as sums that every layer computes for itself."""

from dataclasses import replace

import pytest
import torch
from comparing import PROBLEM_SETTINGS, assert_same_function, gradients, make, tiny

from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.kernels.grouped_attention import (
    DistanceBias,
    ReversibleSum,
    ScoreBuffers,
    SeparateLayers,
    problem_of,
    running_bytes,
)
from addnorm.model import forward_context
from addnorm.testing.laws import some_tokens, subject

SHARED = ["sum", "mean", "root_mean", "power"]


def sides(**changes):
    summed = subject(tiny(attention="running", **changes))
    streamed = subject(tiny(attention="streaming", **changes))
    streamed.load_state_dict(summed.state_dict())
    return summed, streamed


@pytest.mark.plain  # the shapes are those of the models below
@pytest.mark.parametrize("scores", SHARED)
@pytest.mark.parametrize("position", ["none", "rope", "alibi", "t5"])
def test_summed_and_streamed_scores_agree(scores: str, position: str) -> None:
    summed, streamed = sides(scores=make("scores", scores), position=make("position", position))
    assert_same_function(summed, streamed, streamed)


@pytest.mark.parametrize(
    "changes",
    [{"objective": "masked"}, {"depth": 1}, {"kv_heads": 1}, {"position": make("position", "t5")}],
    ids=["masked", "one layer", "one key head", "distance bias"],
)
def test_they_agree_for_other_models(changes: dict[str, object]) -> None:
    summed, streamed = sides(scores=make("scores", "sum"), **changes)
    assert_same_function(summed, streamed, streamed)


def test_the_name_of_version_0_1_is_read() -> None:
    summed, _ = sides(scores=make("scores", "mean"))
    former = subject(tiny(attention="carry", scores=make("scores", "mean")))
    former.load_state_dict(summed.state_dict())
    tokens = some_tokens(summed.spec)
    assert torch.equal(former(tokens), summed(tokens))
    assert former.score_buffers.nbytes == summed.score_buffers.nbytes > 0


def test_the_same_draws_drop_the_same_probabilities() -> None:
    summed, streamed = (model.train() for model in sides(scores=make("scores", "sum")))
    outputs = []
    for model in (summed, streamed):
        object.__setattr__(model.spec.dropout, "attention", 0.5)
        torch.manual_seed(7)
        outputs.append(model(some_tokens(model.spec)))
    with torch.no_grad():
        undropped = summed.eval()(some_tokens(summed.spec))
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=1e-10)
    assert (outputs[0] - undropped).abs().max() > 1e-3


def test_kinds_of_one_weight_say_so() -> None:
    shape = tiny().shape
    kinds = [k for k in ROOMS["scores"].kinds() if make("scores", k).build(shape).shared_weight(0) is not None]
    assert sorted(kinds) == sorted(SHARED)


@pytest.mark.parametrize(("kind", "spare", "expected"), [("sum", 0, True), ("sum", -1, False), ("own", 0, False)])
def test_auto_keeps_a_sum_that_fits(monkeypatch: pytest.MonkeyPatch, kind: str, spare: int, expected: bool) -> None:
    model = tiny(scores=make("scores", kind), attention="auto").build()
    shape, length = model.spec.shape, 8
    heads = torch.zeros(1, shape.heads, length, shape.head_dim)
    key_heads = torch.zeros(1, shape.kv_heads, length, shape.head_dim)
    needed = running_bytes(problem_of([heads], [key_heads], key_heads, [1.0], causal=True))
    monkeypatch.setattr(forward_context, "running_limit", lambda _: needed + spare)
    model(torch.zeros(1, length, dtype=torch.int64)).sum().backward()
    assert model.score_buffers.nbytes == (needed if expected else 0)


@pytest.mark.parametrize("scores", ["own", "weighted", "free", "accumulated_projections"])
def test_it_is_refused_where_no_sum_serves_all_layers(scores: str) -> None:
    expected = "attention: running keeps one running sum of scores: expected scores with one weight"
    with pytest.raises(InputError, match=expected):
        tiny(scores=make("scores", scores), attention="running").build()


def test_replayed_layers_are_refused_by_name_and_streamed_by_auto() -> None:
    changes = {"scores": make("scores", "sum"), "residual": make("residual", "replay")}
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    with pytest.raises(InputError, match="attention: running: expected a residual that does not replay"):
        tiny(attention="running", **changes).build()(tokens)
    model = tiny(attention="auto", **changes).build()
    model(tokens)
    assert model.score_buffers.nbytes == 0


@pytest.mark.parametrize("setting", PROBLEM_SETTINGS)
@pytest.mark.parametrize("bias", ["none", "matrix", "distance"])
def test_weights_that_cannot_scale_the_sum(setting: str, bias: str) -> None:
    """Zero, negative, tiny and huge learned weights, and every gradient, against the reference."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)

    queries, keys = [draw(2, 4, 9, 4) for _ in range(5)], [draw(2, 2, 9, 4) for _ in range(5)]
    values = [draw(2, 2, 9, 3) for _ in range(5)]
    weights = [torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in (0.0, -0.7, 1e-8, 0.3, -2e3)]
    leaves = [*queries, *keys, *values, *weights]
    added: torch.Tensor | DistanceBias | None = None
    if bias != "none":
        entries = draw(1, 4, 9, 9) if bias == "matrix" else draw(1, 4, 17)
        added = entries if bias == "matrix" else DistanceBias(values=entries[0], first=-8)
        leaves.append(entries)
    found = []
    for attention in (SeparateLayers("reference", keep=False), ReversibleSum(ScoreBuffers())):
        outputs = []
        for layer, value in enumerate(values):
            terms, weight = layer + 1, weights[layer].expand(layer + 1)
            problem = problem_of(queries[:terms], keys[:terms], value, weight, bias=added, **PROBLEM_SETTINGS[setting])
            outputs.append(attention.attend(problem, next_terms=terms + 1))
        loss = sum((output * (layer + 1)).square().sum() for layer, output in enumerate(outputs))
        found.append(torch.autograd.grad(loss, leaves))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.plain  # many layers of the same shapes
@pytest.mark.thorough
def test_64_layers_with_large_scores_are_undone_within_the_rounding_of_the_plain_computation() -> None:
    """Scores grow to hundreds; the order of a float32 sum costs no more than the plain computation loses."""
    spec = tiny(scores=make("scores", "sum"), depth=64, max_seq=40)
    tokens = torch.randint(spec.vocab, (1, 40), generator=torch.Generator().manual_seed(0))
    state = subject(replace(spec, attention="reference")).float().state_dict()
    for name, value in state.items():
        if name.endswith(("q.weight", "k.weight")):
            value *= 3
    gradients_of = {}
    for attention, dtype in (("reference", torch.float64), ("reference", torch.float32), ("running", torch.float32)):
        model = subject(replace(spec, attention=attention)).to(dtype)
        model.load_state_dict(state)
        logits = model(tokens)
        found = gradients(model, logits)
        gradients_of[attention, dtype] = torch.cat(
            [g.flatten().double() for _, g in sorted(found.items()) if g is not None]
        )
    truth = gradients_of["reference", torch.float64]
    plain = (gradients_of["reference", torch.float32] - truth).norm()
    assert 0 < (gradients_of["running", torch.float32] - truth).norm() <= 2 * plain
