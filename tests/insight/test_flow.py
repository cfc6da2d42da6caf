"""The measures of `inspect` against a plain computation in float64, on every preset and with every mechanism."""

import gc
import itertools
import math
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from addnorm import preset
from addnorm.catalogue import MECHANISM_ROOMS, ROOMS
from addnorm.insight import score_shares
from addnorm.insight.flow import Windows, attention, flow
from addnorm.insight.flow.measure import measures
from addnorm.insight.flow.recording import Recording, recorded
from addnorm.model.presets import PRESETS
from addnorm.norm.batch import Batch as BatchNorm
from addnorm.placement.post import Post
from addnorm.testing.contract import shrunk, tiny
from addnorm.training.objective import Batch
from sampled import sampled

DOUBLE = torch.float64
CLOSE = 1e-9
"""Relative; float64 keeps 2e-16, and the sums here have at most 1e5 terms of about one size."""


def batch(spec: Any, sequences: int = 3, seq: int = 9, *, draw: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(draw)
    tokens = torch.randint(0, spec.vocab, (sequences, seq + 1), generator=generator)
    where = None
    if spec.objective == "masked":
        where = torch.rand(sequences, seq, generator=generator) < 0.4
        where[0, 0] = True
    return Batch(inputs=tokens[:, :-1].contiguous(), targets=tokens[:, 1:].contiguous(), mask=where)


def windows(spec: Any) -> Windows:
    return Windows(batches=(batch(spec), batch(spec, 2, draw=1)), maps=(batch(spec, 1, draw=2), batch(spec, 1, draw=3)))


class Plain:
    """A pre-norm model with summed scores, rotary positions and grouped queries, written out."""

    def __init__(self, model: Any, tokens: torch.Tensor) -> None:
        self.streams = [model.embedding(tokens)]
        self.added: list[torch.Tensor] = []
        self.maps: list[np.ndarray] = []
        self.terms: list[list[np.ndarray]] = []
        self.read_outs: list[torch.Tensor] = []
        x, seq = self.streams[0], tokens.shape[1]
        angles = model.position.prepare(0, seq, x)
        future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
        scores = torch.zeros((), dtype=DOUBLE)
        own: list[np.ndarray] = []
        for layer in model.layers:
            body, h = layer.attention.body, layer.attention.input_norm(x)
            q, k, v = (
                (h @ m.weight.T).view(*h.shape[:2], -1, body.head_dim).transpose(1, 2)
                for m in (body.query, body.key, body.value)
            )
            q, k = model.position.rotate(q, k, angles)
            k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
            term = q @ k.mT / math.sqrt(body.head_dim)
            own.append(term.detach().numpy())
            scores = scores + term
            p = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1)
            a = (p @ v).transpose(1, 2).flatten(2) @ body.output.weight.T
            self.maps.append(p.detach().numpy())
            self.terms.append(list(own))
            for addition in (a, None):
                y = layer.feedforward.body(layer.feedforward.input_norm(x)) if addition is None else addition
                x = x + y
                self.added.append(y)
                self.streams.append(x)
            self.read_outs.append(model.head(model.final_norm(x)))


@pytest.fixture(scope="module")
def summed():
    """A model, its windows, what `flow` says, and the plain computation of each batch."""
    spec = shrunk(preset("v4m1"), width=16, depth=3)
    model = spec.build(4).double()
    given = windows(spec)
    found = flow(model, given)
    return model, given, found, [[Plain(model, b.inputs) for b in side] for side in (given.batches, given.maps)]


def norm(tensors: Any) -> float:
    return math.sqrt(sum(float((t.detach() ** 2).sum()) for t in tensors))


def test_gradients_are_those_of_the_mean_loss(summed) -> None:
    model, given, found, _ = summed
    model.zero_grad()
    logits = torch.cat([model(b.inputs).flatten(0, 1) for b in given.batches])
    F.cross_entropy(logits, torch.cat([b.targets.flatten() for b in given.batches])).backward()
    of = {name: p.grad for name, p in model.named_parameters()}
    assert found["gradient"] == pytest.approx(norm(of.values()), rel=CLOSE)
    assert found["embedding"]["gradient"] == pytest.approx(norm([of["embedding.weight"]]), rel=CLOSE)
    for row in found["layers"]:
        mine = [g for name, g in of.items() if name.startswith(f"layers.{row['layer']}.")]
        assert row["gradient"] == pytest.approx(norm(mine), rel=CLOSE)
    for row in found["sites"]:
        mine = [g for name, g in of.items() if name.startswith(f"layers.{row['layer']}.{row['role']}.")]
        assert row["gradient"] == pytest.approx(norm(mine), rel=CLOSE)


def test_stream_gradients(summed) -> None:
    _model, given, found, (plain, _) = summed
    count = sum(b.targets.numel() for b in given.batches)
    for place, row in enumerate(found["sites"]):
        squares = 0.0
        for b, p in zip(given.batches, plain, strict=True):
            loss = F.cross_entropy(p.read_outs[-1].flatten(0, 1), b.targets.flatten(), reduction="sum") / count
            (gradient,) = torch.autograd.grad(loss, p.streams[place + 1], retain_graph=True)
            squares += norm([gradient]) ** 2
        assert row["stream_gradient"] == pytest.approx(math.sqrt(squares), rel=CLOSE)


def test_the_stream_and_what_joins_it(summed) -> None:
    _, _, found, (plain, _) = summed

    def rms(tensors: list[torch.Tensor]) -> float:
        return norm(tensors) / math.sqrt(sum(t.numel() for t in tensors))

    assert found["embedding"]["rms"] == pytest.approx(rms([p.streams[0] for p in plain]), rel=CLOSE)
    for place, row in enumerate(found["sites"]):
        after = [p.streams[place + 1] for p in plain]
        assert row["rms"] == pytest.approx(rms(after), rel=CLOSE)
        assert row["share"] == pytest.approx(norm([p.added[place] for p in plain]) / norm(after), rel=CLOSE)
    assert [row["rms"] for row in found["layers"]] == [row["rms"] for row in found["sites"][1::2]]


def test_a_branchs_share_is_taken_before_post_norm_and_the_size_after() -> None:
    spec = shrunk(preset("v4m1"), width=16, depth=1, placement=Post(), init_std=0.7)
    model = spec.build(5).double()
    given = windows(spec)
    first = flow(model, given)["sites"][0]
    plain = [Plain(model, b.inputs) for b in given.batches]  # its first branch is the same: post-norm has no input norm
    joined = [p.streams[0] + p.added[0] for p in plain]
    normed = [model.layers[0].attention.stream_norm(x) for x in joined]
    assert norm(joined) != pytest.approx(norm(normed), rel=0.1)
    assert first["share"] == pytest.approx(norm([p.added[0] for p in plain]) / norm(joined), rel=CLOSE)
    assert first["rms"] == pytest.approx(norm(normed) / math.sqrt(sum(x.numel() for x in normed)), rel=CLOSE)


def test_attention_rows(summed) -> None:
    _, _, found, (_, plain) = summed
    rows = range(1, plain[0].maps[0].shape[2])  # the first row sees one position
    for layer, row in enumerate(found["attention"]):
        for head, said in enumerate(row["heads"]):
            mine = [p.maps[layer][0, head, r] for p in plain for r in rows]
            assert said["entropy"] == pytest.approx(np.mean([entropy(m) for m in mine]), rel=CLOSE)
            share = [entropy(m) / math.log(r + 1) for m, r in zip(mine, itertools.cycle(rows))]
            assert said["entropy_share"] == pytest.approx(np.mean(share), rel=CLOSE)
            assert said["one_hot"] == np.mean([m.max() > 0.9 for m in mine])
            if layer:
                before = [p.maps[layer - 1][0, head, r] for p in plain for r in rows]
                alike = [1 - float(jensenshannon(a, b, base=2)) ** 2 for a, b in zip(before, mine, strict=True)]
                assert said["similarity"] == pytest.approx(np.mean(alike), rel=CLOSE)
        if layer:
            pairs = [(p.maps[layer - 1][0, :, r].mean(0), p.maps[layer][0, :, r].mean(0)) for p in plain for r in rows]
            alike = [1 - float(jensenshannon(a, b, base=2)) ** 2 for a, b in pairs]
            assert row["mean_similarity"] == pytest.approx(np.mean(alike), rel=CLOSE)
    assert "similarity" not in found["attention"][0]


@pytest.mark.parametrize("normalisation", ["squared_relu", "softpick"])
@pytest.mark.parametrize("silent", [(1,), (0, 3), (0, 1, 2, 3)])
def test_a_head_that_reads_nothing_is_left_out_of_the_means_of_its_layer(
    silent: tuple[int, ...], normalisation: str
) -> None:
    spec = preset("llama", vocab=20, width=16, depth=3, heads=4, hidden=8, max_seq=16, normalisation=normalisation)
    given, models = windows(spec), [spec.build(seed=0).double() for _ in range(2)]
    with torch.no_grad():
        for model in models:
            for parameter in model.parameters():
                parameter.mul_(3 if parameter.dim() > 1 else 1)
        for head in silent:  # scores of zero, of which both functions make no weight
            models[1].layers[1].attention.body.query.weight[4 * head : 4 * (head + 1)] = 0
    whole, found = (flow(model, given)["attention"] for model in models)
    reading = [head for head in range(4) if head not in silent]
    names = {"entropy", "entropy_share", "one_hot", "first_share", "similarity"}
    for head, (row, expected) in enumerate(zip(found[1]["heads"], whole[1]["heads"], strict=False)):
        assert row == (expected if head in reading else {"head": head})
    for name in names:
        expected = [whole[1]["heads"][head][name] for head in reading]
        assert found[1].get(name) == (pytest.approx(np.mean(expected), rel=CLOSE) if reading else None)
    assert ("mean_similarity" in found[1]) == ("mean_similarity" in found[2]) == bool(reading)
    assert all(
        math.isfinite(value) for row in found for name, value in row.items() if name in (*names, "mean_similarity")
    )


def test_the_similarity_of_means_is_that_of_the_heads_that_read() -> None:
    seen = torch.tensor([[[1, 1, 0, 1, 0, 0]], [[1, 0, 1, 1, 1, 0]]]).movedim(0, 1).bool()  # [batch, heads, query]
    draws = torch.Generator().manual_seed(0)
    tally, blocks = (
        attention.AttentionTally(),
        torch.rand(2, *seen.shape, 6, dtype=DOUBLE, generator=draws) * seen[..., None],
    )
    rows = [
        SimpleNamespace(block=lambda columns, b=b: b[..., columns], visible=torch.full((1, 1, 6), 6)) for b in blocks
    ]
    tally._compare(dict(enumerate(rows)), {place: b.sum(-1) for place, b in enumerate(blocks)}, 6)
    maps = [(b / b.sum(-1, keepdim=True))[0] for b in blocks]
    alike = []
    for row in range(5):
        one, other = (m[seen[0, :, row], row].mean(0).numpy() for m in maps)
        alike.append(1 - float(jensenshannon(one, other, base=2)) ** 2)
    assert tally.mean_similarity[1].means[0] == pytest.approx(np.mean(alike), rel=CLOSE)


def test_some_row_is_one_hot_and_some_is_not(summed) -> None:
    """Else the test above would compare zeros."""
    shares = [head["one_hot"] for row in summed[2]["attention"] for head in row["heads"]]
    assert max(shares) > 0
    assert min(shares) < 1


def test_shares_of_the_summed_scores(summed) -> None:
    _, _, found, (_, plain) = summed
    for layer, row in enumerate(found["attention"][1:], start=1):
        for head, said in enumerate(row["heads"]):
            parts = np.zeros(layer + 1)
            for p in plain:
                terms = np.stack([t[0, head] for t in p.terms[layer]])
                for r in range(terms.shape[1]):
                    seen = terms[:, r, : r + 1]
                    whole = seen.sum(0)
                    parts += [np.mean((t - t.mean()) * (whole - whole.mean())) * len(whole) for t in seen]
            assert said["own_share"] == pytest.approx(parts[-1] / parts.sum(), rel=1e-7)
        assert sum(row["score_shares"]) == pytest.approx(1)
        assert row["own_share"] == pytest.approx(row["score_shares"][-1])
    assert "own_share" not in found["attention"][0]


def test_early_exits(summed) -> None:
    _, given, found, (plain, _) = summed
    targets = torch.cat([b.targets.flatten() for b in given.batches])
    for layer, row in enumerate(found["layers"]):
        logits = torch.cat([p.read_outs[layer].flatten(0, 1) for p in plain])
        assert row["exit_loss"] == pytest.approx(F.cross_entropy(logits, targets).item(), rel=CLOSE)
    assert found["loss"] == found["layers"][-1]["exit_loss"]


def every_mechanism() -> list[Any]:
    found = [pytest.param(shrunk(preset(name)), id=name) for name in PRESETS]
    for room in MECHANISM_ROOMS:
        for kind in ROOMS[room].kinds():
            found.append(pytest.param(tiny(room, ROOMS[room].spec_class(kind)()), id=f"{room}-{kind}"))
    return found


@pytest.mark.parametrize("spec", sampled(6, every_mechanism()))
def test_every_model_can_be_watched_and_is_left_as_it_was(spec) -> None:
    model, given = spec.build(1), windows(spec)
    model.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        said = model(given.batches[0].inputs)
    found = flow(model, given)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert not {"open", "write"} & vars(model.residual).keys()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    with torch.no_grad():
        assert torch.equal(model(given.batches[0].inputs), said)
        nats = count = 0.0
        for b in given.batches:
            where = torch.ones_like(b.targets, dtype=torch.bool) if b.mask is None else b.mask
            nats += F.cross_entropy(model(b.inputs)[where], b.targets[where], reduction="sum").item()
            count += int(where.sum())
    assert found["loss"] == pytest.approx(nats / count, rel=1e-5)
    assert len(found["layers"]) == spec.depth
    assert [row["site"] for row in found["sites"]] == list(range(len(found["sites"])))
    assert numbers(found), "every number is finite at these sizes"
    for row in found["attention"]:
        assert len(row["heads"]) in (1, spec.heads)
        assert 0 <= row["entropy_share"] <= 1 + 1e-6
        assert -1e-6 <= row.get("similarity", 0) <= 1 + 1e-6
        if "score_shares" in row:
            assert sum(row["score_shares"]) == pytest.approx(1)


def test_no_stream_outlives_its_pass() -> None:
    """Else the activations of one pass would be held while all others are measured."""
    spec = shrunk(preset("v4m1"))
    model, streams = spec.build(0), list[weakref.ref[torch.Tensor]]()

    def record(one: Batch) -> Recording:
        gc.collect()
        assert not any(stream() is not None for stream in streams)
        made = recorded(model, one)
        streams.extend(weakref.ref(site.after) for site in made.sites)
        return made

    measures(model, record, windows(spec))
    assert len(streams) == 4 * len(model.site_branches())


def test_looking_again_finds_the_same(summed) -> None:
    model, given, found, _ = summed
    assert flow(model, given) == found


def numbers(value: Any) -> bool:
    """Whether all leaves are there and finite."""
    if isinstance(value, dict | list):
        return all(numbers(item) for item in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def test_what_a_model_does_not_have_is_absent() -> None:
    spec = shrunk(preset("base"))
    found = flow(spec.build(0), windows(spec))
    assert "own_share" not in found["layers"][-1]
    assert (
        "own_share" in flow(shrunk(preset("realformer")).build(0), windows(shrunk(preset("realformer"))))["layers"][-1]
    )


def test_numbers_that_are_not_finite_are_none() -> None:
    spec = shrunk(preset("base"))
    model = spec.build(0)
    with torch.no_grad():
        model.head.weight[0, 0] = float("nan")
    found = flow(model, windows(spec))
    assert found["loss"] is None
    assert found["layers"][0]["rms"] > 0


@pytest.mark.parametrize("name", ["v4m1", "bert"])
def test_blocks_change_nothing(name, monkeypatch) -> None:
    spec = shrunk(preset(name))
    model = spec.build(2).double()
    whole = flow(model, windows(spec))
    monkeypatch.setattr(attention, "COLUMNS", 4)
    monkeypatch.setattr(score_shares, "ROWS", 2)
    for one, other in zip(flow(model, windows(spec))["attention"], whole["attention"], strict=True):
        for key in one.keys() - {"heads", "role", "score_shares"}:
            assert one[key] == pytest.approx(other[key], rel=CLOSE)


class Largest(TorchDispatchMode):
    """The most entries that any result had."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, torch.Tensor):
                self.entries = max(self.entries, value.untyped_storage().nbytes() // value.element_size())
        return result


def test_attention_is_measured_in_memory_linear_in_the_length(monkeypatch) -> None:
    monkeypatch.setattr(attention, "COLUMNS", 64)
    monkeypatch.setattr(score_shares, "ROWS", 16)

    def largest(seq: int) -> int:
        spec = shrunk(preset("v4m1"), width=8, depth=2, heads=2, kv_heads=1, max_seq=seq)
        with Largest() as found:
            flow(spec.build(0), Windows(batches=(batch(spec, 1, 8),), maps=(batch(spec, 1, seq),)))
        return found.entries

    assert largest(512) <= 2 * largest(256), "a matrix of queries and keys would be four times as large"


def test_batch_norm_uses_the_batch_for_gradients_alone() -> None:
    spec = shrunk(preset("base"), norm=BatchNorm(), depth=2)
    model, given = spec.build(3).double(), windows(spec)
    found = flow(model, Windows(batches=given.batches[:1], maps=given.maps))
    reference = spec.build(3).double().train()
    b = given.batches[0]
    F.cross_entropy(reference(b.inputs).flatten(0, 1), b.targets.flatten()).backward()
    assert found["gradient"] == pytest.approx(norm([p.grad for p in reference.parameters()]), rel=CLOSE)
