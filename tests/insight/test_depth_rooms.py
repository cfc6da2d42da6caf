"""Depth matrices of scores, values and columns, and what of a matrix is more than a scale."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from addnorm import ModelSpec, depth_matrix, identities, preset
from addnorm.bias import Biases
from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.insight.depth.matrix import READERS, depth_matrices, free_of_gauge, joined_rooms
from addnorm.kernels.grouped_attention import with_value
from addnorm.kernels.grouped_attention.normalisation import attention_of
from addnorm.kernels.grouped_attention.reference import masked_scores, reference
from addnorm.model.trace import Trace
from addnorm.testing.laws import some_tokens, subject
from addnorm.words import phrases
from sampled import sampled

LEARNED_FIRST = {"kind": "first", "weights": "learned"}


def toy(**changes: Any) -> ModelSpec:
    sizes = {"vocab": 11, "width": 16, "depth": 3, "heads": 2, "kv_heads": 1, "hidden": 24, "max_seq": 16}
    return preset("llama", **(sizes | {"init_std": 0.3} | changes))


JOINTS = [
    *(("scores", kind) for kind in ROOMS["scores"].kinds()),
    *(("values", kind) for kind in (*ROOMS["values"].kinds(), LEARNED_FIRST, {"kind": "first", "weights": "shared"})),
    *(("column", kind) for kind in (*ROOMS["column"].kinds(), {"kind": "earlier", "most": 1})),
]


@pytest.mark.parametrize(("room", "kind"), JOINTS, ids=str)
def test_the_contributions_add_up_and_none_comes_from_later(room: Any, kind: Any) -> None:
    model = subject(toy(**{room: kind}))
    parts = identities(model, some_tokens(model.spec), room)
    for part in parts:
        assert part.read.abs().max() > 0
        assert part.shift.abs().max() <= 1e-12 * part.read.abs().max(), part.name
    assert parts[0].of_source[1:3].abs().max() == 0  # the first layer has no part of the later ones


SUMS = [kind for kind in ROOMS["scores"].kinds() if kind != "accumulated_projections"]


@pytest.mark.parametrize("kind", SUMS)
@pytest.mark.parametrize("objective", ["causal", "masked"])
def test_shares_of_scores_are_those_of_the_variance_along_the_rows(kind: str, objective: str) -> None:
    model = subject(toy(scores=kind, objective=objective))
    tokens = some_tokens(model.spec)
    trace = Trace()
    model(tokens, trace=trace)
    found = depth_matrix(model, tokens, "scores").shares
    for layer, part in enumerate(identities(model, tokens, "scores")):
        of_head = torch.zeros(2, layer + 1).double()
        for head in range(2):
            whole = 0.0
            for batch in range(len(tokens)):
                for row in range(tokens.shape[1]):
                    sees = slice(0, row + 1 if objective == "causal" else None)
                    summed = part.read[batch, head, row, sees]
                    whole += float(summed.var(correction=0)) * len(summed)
                    for source in range(layer + 1):
                        own = part.of_source[source, batch, head, row, sees]
                        of_head[head, source] += ((own - own.mean()) * (summed - summed.mean())).sum()
            of_head[head] /= whole
        torch.testing.assert_close(found[layer, : layer + 1], of_head.mean(dim=0), rtol=0, atol=1e-10)
        assert torch.equal(found[layer, layer + 1 :], torch.zeros(2 - layer).double())


def test_a_bias_that_cannot_matter_moves_no_share_of_the_scores() -> None:
    """Without rotary positions a bias of the keys adds a constant to each row of the scores."""
    model = subject(toy(scores="weighted", position="learned", bias=Biases(k=True)))
    tokens = some_tokens(model.spec)
    before = depth_matrix(model, tokens, "scores").shares
    with torch.no_grad():
        biases = [bias for name, bias in model.named_parameters() if name.endswith("qk_bias.k")]
        for bias in biases:
            bias += 3 * torch.randn_like(bias)
    assert len(biases) == 3
    torch.testing.assert_close(depth_matrix(model, tokens, "scores").shares, before, rtol=0, atol=1e-8)


@pytest.mark.parametrize("layer", range(3))
def test_summed_scores_are_those_that_attention_is_computed_from(layer: int) -> None:
    model, trace = subject(toy(scores="weighted")), Trace()
    tokens = some_tokens(model.spec)
    model(tokens, trace=trace)
    problem = trace.attentions[layer].problem
    weights = problem.weights.flatten()
    terms = [
        w * q @ k.repeat_interleave(2, 1).mT for w, q, k in zip(weights, problem.queries, problem.keys, strict=True)
    ]
    torch.testing.assert_close(identities(model, tokens, "scores")[layer].read, sum(terms).detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("changes", [{}, {"sink": "logit", "score_cap": 5.0}], ids=["plain", "sink and cap"])
def test_a_column_has_the_probabilities_of_attention(changes: dict[str, Any]) -> None:
    """Against the definition, in which a column's keys are further keys of which a row sees its own."""
    model, trace = subject(toy(column={"kind": "earlier", "most": 1}, **changes)), Trace()
    tokens = some_tokens(model.spec)
    model(tokens, trace=trace)
    found, parts = depth_matrix(model, tokens, "column"), identities(model, tokens, "column")
    assert found.sources == found.reads == ("0", "1", "2")
    for layer, attention in enumerate(trace.attentions):
        problem = attention.problem
        torch.testing.assert_close(parts[layer].read, reference(problem).detach(), rtol=0, atol=1e-12)
        mean = attention_of(problem, masked_scores(problem)).detach().mean(dim=(0, 1, 2))
        expected = torch.zeros(3).double()
        expected[layer] = mean[: problem.key].sum()
        if layer:
            expected[layer - 1] = mean[problem.key :].sum()
        torch.testing.assert_close(found.weights[layer], expected, rtol=0, atol=1e-12)
    assert found.weights.sum(dim=1).allclose(torch.ones(3).double()) is not bool(changes)  # a sink takes the rest
    assert found.weights[2, 1] > 1e-3
    with pytest.raises(InputError, match="the weights of column 'earlier' depend on them"):
        depth_matrix(model, room="column")


@pytest.mark.parametrize("sink", sampled(2, ROOMS["sink"].kinds()))
@pytest.mark.parametrize("column", ROOMS["column"].kinds())
def test_sinks_columns_and_scores_are_read_together(sink: str, column: str) -> None:
    """A sink takes its share of every row, and no source has it, whichever way it gets into the softmax."""
    refused = []
    for scores in ROOMS["scores"].kinds():
        try:
            spec = toy(sink=sink, column=column, scores=scores)
        except InputError:
            refused.append(scores)
            continue
        model, trace = subject(spec), Trace()
        tokens = some_tokens(spec)
        model(tokens, trace=trace)
        assert {*depth_matrices(model, tokens)} == {*joined_rooms(model)}
        for room in READERS:
            for part in identities(model, tokens, room):
                assert part.shift.abs().max() <= 1e-9 * part.read.abs().max(), (scores, room, part.name)
        mass = depth_matrix(model, tokens, "column").weights.sum(dim=1)
        for layer, (part, attention) in enumerate(
            zip(identities(model, tokens, "column"), trace.attentions, strict=True)
        ):
            expected = reference(attention.problem).detach()
            torch.testing.assert_close(part.read, expected, rtol=0, atol=1e-12)
            ones = torch.ones_like(attention.problem.value)
            problem = with_value(attention.problem, ones)
            of_earlier = () if model.column is None else model.column.sources(layer)
            values = tuple(
                torch.full_like(each, float(at < len(of_earlier))) for at, each in enumerate(problem.column_values)
            )
            kept = reference(replace(problem, column_values=values)).mean()
            torch.testing.assert_close(mass[layer], kept.detach(), rtol=0, atol=1e-12)
        assert bool(torch.allclose(mass, torch.ones(3).double())) is (sink == "none"), (scores, mass)
    others = [kind for kind in ROOMS["scores"].kinds() if kind != "own"]
    assert refused == (others if column != "none" else [])


def test_a_column_is_recorded_where_there_is_one() -> None:
    model = subject(toy(column="earlier"))
    recorded = depth_matrices(model, some_tokens(model.spec))
    assert list(recorded) == ["residual", "column"]
    assert recorded["column"]["kind"] == "earlier"
    assert len(recorded["column"]["heads"][2][0]) == 2


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_has_words_for_every_room(language: str) -> None:
    for room in READERS:
        assert f"depth.{room}" in phrases(language).words


def test_known_weights_of_scores_and_values() -> None:
    mean = depth_matrix(toy(scores="mean").build(), room="scores")
    torch.testing.assert_close(mean.weights, torch.ones(3, 3).double().tril() / torch.arange(1.0, 4)[:, None])
    assert mean.by_head is not None
    assert mean.by_head.shape == (3, 3, 2)
    merged = depth_matrix(toy(scores="accumulated_projections").build(), room="scores")
    assert merged.reads == ("0.query", "0.key", "1.query", "1.key", "2.query", "2.key")
    torch.testing.assert_close(merged.weights, torch.ones(3, 3).double().tril().repeat_interleave(2, dim=0))
    first = depth_matrix(toy(values={"kind": "first", "own": 0.7, "first": 0.2}).build(), room="values")
    assert first.sources == ("0", "1", "2")
    torch.testing.assert_close(first.weights, torch.tensor([[1, 0, 0], [0.2, 0.7, 0], [0.2, 0, 0.7]]).double())


def test_the_gate_of_a_table_is_its_weight() -> None:
    model = subject(toy(values={"kind": "table", "layers": "all"}))
    tokens = some_tokens(model.spec)
    with pytest.raises(InputError, match="the weights of values 'table' depend on them"):
        depth_matrix(model, room="values")
    found = depth_matrix(model, tokens, "values")
    assert found.sources[-1] == "table"
    assert found.spread[:, -1].min() > 1e-6
    with torch.no_grad():
        for gate in model.values.gate.values():
            gate.zero_()  # half of the scale
    torch.testing.assert_close(depth_matrix(model, tokens, "values").weights[:, -1], torch.ones(3).double())


def test_another_room_is_refused() -> None:
    with pytest.raises(InputError, match="room: expected one of residual, scores, values, column, got 'norm'"):
        depth_matrix(toy().build(), room="norm")  # type: ignore[arg-type]


def test_the_model_is_left_as_it_was() -> None:
    model = toy(values="first", residual="dense").build().train()
    before = model.values
    depth_matrices(model, some_tokens(model.spec))
    assert model.training
    assert model.values is before
    assert not model.residual.frozen


GAUGES = [
    ("residual", {"residual": "rezero"}),
    ("residual", {"residual": "lambdas"}),
    ("residual", {"placement": "deepnorm"}),
    ("residual", {"placement": "post"}),
    ("residual", {"residual": "layer_scale"}),
    ("values", {"values": LEARNED_FIRST}),
]


@pytest.mark.parametrize(("room", "changes"), GAUGES, ids=str)
def test_factors_that_matrices_could_take_over_are_gone(room: Any, changes: Any) -> None:
    spec = toy(**changes)
    # Gains of norms that differ between entries are no single number, just as layer_scale's factors.
    model = spec.build(seed=0).double().eval() if "placement" in changes else subject(spec)
    if changes.get("residual") == "lambdas":
        with torch.no_grad():
            model.residual.embedding.zero_()  # what is left scales the stream
    found = depth_matrix(model, some_tokens(model.spec), room)
    if changes.get("residual") != "layer_scale":  # a factor per entry is no single number: its mean stands for it
        torch.testing.assert_close(found.relative, (found.weights != 0).double(), rtol=0, atol=1e-9)
    assert (found.weights - (found.weights != 0).double()).abs().max() > 0.01
    torch.testing.assert_close(found.shares.sum(1), torch.ones(len(found.reads)).double())


@pytest.mark.parametrize(
    ("room", "changes"),
    [("residual", {"residual": "lambdas"}), ("residual", {"residual": "dense"}), ("scores", {"scores": "power"})],
    ids=str,
)
def test_ratios_that_no_factor_can_make_are_kept(room: Any, changes: Any) -> None:
    model = subject(toy(**changes))
    found = depth_matrix(model, some_tokens(model.spec), room)
    assert (found.relative - (found.weights != 0).double()).abs().max() > 0.01


def test_rescaling_rows_and_columns_changes_no_relative_weight() -> None:
    weights = torch.rand(5, 5, 3, dtype=torch.float64).add(0.1)
    weights *= torch.ones(5, 5).tril()[..., None]
    rows, columns = torch.rand(5, 1, 3).double().add(0.1), torch.rand(1, 5, 3).double().sub(0.5)
    torch.testing.assert_close(free_of_gauge(weights * rows * columns), free_of_gauge(weights))
    torch.testing.assert_close(
        free_of_gauge(weights * columns, rows_scale=False), free_of_gauge(weights, rows_scale=False)
    )
    assert (
        free_of_gauge(weights * rows, rows_scale=False) - free_of_gauge(weights, rows_scale=False)
    ).abs().max() > 0.1


def test_rooms_that_join_layers_are_recorded() -> None:
    assert joined_rooms(toy().build()) == ("residual",)
    assert joined_rooms(toy(scores="sum", values="first").build()) == ("residual", "scores", "values")
    assert joined_rooms(toy(residual="replay", scores="accumulated_projections").build()) == ("scores",)
    recorded = depth_matrices(toy(scores="weighted").build(), some_tokens(toy()))
    assert recorded["scores"]["weights"][2] == [1.0, 1.0, 1.0]
    assert "heads" not in recorded["scores"]
