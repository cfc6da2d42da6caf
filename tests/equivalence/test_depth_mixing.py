"""Residuals that mix over depth, against their formulas written out with loops, in float64; and the traps of their kind."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm import preset
from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.kernels.depth_mixing import sinkhorn
from addnorm.model.spec import ModelSpec
from addnorm.residual import Residual, SeparateReads, Site
from addnorm.residual._streams import permutation_matrices
from addnorm.testing.laws import some_tokens, subject

WIDTH, DEPTH = 6, 3
SITES = 2 * DEPTH


def spec(residual: Any, **changes: Any) -> ModelSpec:
    sizes = {"vocab": 11, "width": WIDTH, "depth": DEPTH, "heads": 1, "kv_heads": 1, "hidden": 8, "max_seq": 16}
    return preset("llama", residual=residual, **(sizes | {"init_std": 0.5} | changes))


@pytest.fixture
def branches() -> list[Callable[[Tensor], Tensor]]:
    generator = torch.Generator().manual_seed(1)
    matrices = torch.randn(SITES, WIDTH, WIDTH, generator=generator, dtype=torch.float64)
    return [lambda x, matrix=matrix: torch.tanh(x @ matrix) for matrix in matrices]


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 3, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def moved(residual: Any) -> Residual:
    """The residual of a model with all parameters off their start."""
    return subject(spec(residual)).residual


def run(residual: Residual, branches: list[Callable[[Tensor], Tensor]], x: Tensor) -> Tensor:
    """What the final norm is given; a branch with separate reads adds up its branch of each."""
    state = residual.open(x)
    for place, branch in zip(residual.sites, branches, strict=True):
        read, state = residual.read(state, Site(place.index, place.layer, place.role))
        y = sum(map(branch, read)) if isinstance(read, SeparateReads) else branch(read)
        state = residual.write(state, y, Site(place.index, place.layer, place.role))
    return residual.close(state)


def unit(v: Tensor) -> Tensor:
    return v / v.square().mean(dim=-1, keepdim=True).add(1e-8).sqrt()


def attention(r: Any, branches: Any, x: Tensor) -> Tensor:
    finished, unfinished = [x], []

    def mix(index: int) -> Tensor:
        sources = finished + ([sum(unfinished)] if unfinished else [])
        logits = [(unit(v) * r.gain[index] * r.query[index]).sum(dim=-1) for v in sources]
        total = sum(logit.exp() for logit in logits)
        return sum((logit.exp() / total)[..., None] * v for logit, v in zip(logits, sources, strict=True))

    for index, branch in enumerate(branches):
        unfinished.append(branch(mix(index)))
        if len(unfinished) == r.block:
            finished.append(sum(unfinished))
            unfinished = []
    return mix(SITES)


def free_streams(r: Any, branches: Any, x: Tensor) -> Tensor:
    n = r.streams
    streams = [x] * n
    for index, branch in enumerate(branches):
        normed = [unit(stream) for stream in streams]
        by = [[torch.tanh((v * r.weight[index, row]).sum(dim=-1)) for row in range(n + 2)] for v in normed]
        s = r.factor[index]
        pre = [r.pre[index, j] + s[0] * by[j][0] for j in range(n)]
        post = [r.post[index, j] + s[1] * by[j][1] for j in range(n)]
        mix = [[r.mix[index, i, j] + s[2] * by[j][2 + i] for j in range(n)] for i in range(n)]
        y = branch(sum(pre[j][..., None] * streams[j] for j in range(n)))
        streams = [sum(mix[i][j][..., None] * streams[j] for j in range(n)) + post[i][..., None] * y for i in range(n)]
    return sum(streams) / n


def sinkhorn_streams(r: Any, branches: Any, x: Tensor) -> Tensor:
    n = r.streams
    streams = [x] * n
    for index, branch in enumerate(branches):
        flat = unit(torch.cat(streams, dim=-1))
        s, offset = r.factor[index], r.offset[index]
        value = [(flat * row).sum(dim=-1) for row in r.weight[index]]
        pre = [torch.sigmoid(offset[j] + s[0] * value[j]) for j in range(n)]
        post = [2 * torch.sigmoid(offset[n + j] + s[1] * value[n + j]) for j in range(n)]
        logits = [offset[2 * n + k] + s[2] * value[2 * n + k] for k in range(n * n)]
        matrix = [[logits[n * i + j].exp() for j in range(n)] for i in range(n)]
        for _ in range(20):
            columns = [sum(matrix[i][j] for i in range(n)) for j in range(n)]
            matrix = [[matrix[i][j] / columns[j] for j in range(n)] for i in range(n)]
            matrix = [[entry / sum(row) for entry in row] for row in matrix]
        y = branch(sum(pre[j][..., None] * streams[j] for j in range(n)))
        streams = [
            sum(matrix[i][j][..., None] * streams[j] for j in range(n)) + post[i][..., None] * y for i in range(n)
        ]
    return sum(streams) / n


def dense(r: Any, branches: Any, x: Tensor) -> Tensor:
    outputs, stream = [x], x
    for layer in range(DEPTH):
        for branch in branches[2 * layer : 2 * layer + 2]:
            stream = stream + branch(stream)
        outputs.append(stream)
        counted = outputs[::-1][:: r.dilation][::-1]
        stream = sum(weight * v for weight, v in zip(r.weights[layer], counted, strict=True))
    return stream


def dynamic_dense(r: Any, branches: Any, x: Tensor) -> Tensor:
    outputs, stream, reads = [x], x, None
    for layer in range(DEPTH):
        attention, feedforward = branches[2 * layer : 2 * layer + 2]
        stream = stream + (attention(stream) if reads is None else sum(attention(read) for read in reads))
        stream = stream + feedforward(stream)
        outputs.append(stream)
        part = r.layers[layer]
        weights = (F.gelu(unit(stream) @ part.up.T) @ part.down.T).unflatten(-1, part.static.shape) + part.static
        mixed = [sum(w[..., i, None] * v for i, v in enumerate(outputs)) for w in weights.unbind(dim=-2)]
        stream, reads = mixed[-1], mixed[:-1] or None
    return stream


def cross(r: Any, branches: Any, x: Tensor) -> Tensor:
    outputs = [x]

    def mix(index: int) -> list[Tensor]:
        part = r.gates[index]
        return [
            sum(
                (b + torch.relu((w * unit(v)).sum(dim=-1, keepdim=True))) * v
                for b, w, v in zip(*way, outputs, strict=True)
            )
            for way in zip(part.static, part.gate, strict=True)
        ]

    for index, branch in enumerate(branches):
        outputs.append(sum(map(branch, mix(index))))
    return mix(SITES)[0]


def alternating(r: Any, branches: Any, x: Tensor) -> Tensor:
    n = r.streams
    streams = [x] * n
    for layer in range(DEPTH):
        predicted = [streams[i] + sum(r.prediction[layer, i, j] * streams[j] for j in range(n)) for i in range(n)]
        active = predicted[layer % n]
        for branch in branches[2 * layer : 2 * layer + 2]:
            active = active + branch(active)
        difference = active - predicted[layer % n]
        streams = [predicted[i] + (1 + r.correction[layer, i]) * difference for i in range(n)]
    return sum(streams) / n


def lambdas(r: Any, branches: Any, x: Tensor) -> Tensor:
    stream, outputs = x, []
    for layer in range(DEPTH):
        stream = r.stream[layer] * stream + r.embedding[layer] * x
        if layer == DEPTH - 1:  # of three layers, the third reads the first
            stream = stream + torch.sigmoid(r.skip[0]) * outputs[0]
        for branch in branches[2 * layer : 2 * layer + 2]:
            stream = stream + branch(stream)
        outputs.append(stream)
    return stream - r.backout * outputs[1]


def siamese(r: Any, branches: Any, x: Tensor) -> Tensor:
    post, pre = x, x
    for index, branch in enumerate(branches):
        norms = r.reads[index]
        post = norms.post(post)
        y = branch(post + norms.pre(pre))
        post, pre = post + y / (2 * (index // 2 + 1)) ** 0.5, pre + y
    return r.reads[-1].post(post) + r.reads[-1].pre(pre)


REFERENCES = [
    ({"kind": "attention"}, attention),
    ({"kind": "attention", "block": 2}, attention),
    ({"kind": "attention", "block": 3}, attention),
    ({"kind": "streams", "streams": 3}, free_streams),
    ({"kind": "streams", "streams": 3, "mixing": "sinkhorn"}, sinkhorn_streams),
    ({"kind": "dense"}, dense),
    ({"kind": "dense", "dilation": 2}, dense),
    ({"kind": "dynamic_dense"}, dynamic_dense),
    ({"kind": "dynamic_dense", "reads": "one"}, dynamic_dense),
    ({"kind": "cross"}, cross),
    ({"kind": "alternating", "streams": 2}, alternating),
    ({"kind": "lambdas", "skips": True, "backout": True}, lambdas),
    ({"kind": "siamese"}, siamese),
]


@pytest.mark.parametrize(
    ("residual", "reference"), REFERENCES, ids=lambda value: str(getattr(value, "__name__", value))
)
def test_it_computes_its_formula(
    residual: Any, reference: Any, branches: list[Callable[[Tensor], Tensor]], x: Tensor
) -> None:
    built = moved(residual)
    inputs = [x.requires_grad_(), *built.parameters()]
    found, expected = (
        (out, *torch.autograd.grad(out.square().sum(), inputs, materialize_grads=True))
        for out in (run(built, branches, x), reference(built, branches, x))
    )
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_sinkhorn_keeps_the_mean_of_the_streams(streams: int) -> None:
    logits = torch.randn(streams, streams, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix = sinkhorn(logits, rounds=200)
    for axis in (0, 1):
        torch.testing.assert_close(matrix.sum(dim=axis), torch.ones(streams, 5).double(), rtol=0, atol=1e-9)
    few = sinkhorn(logits, rounds=1)  # a slice that is taken for the whole would make every stream the sum of all
    torch.testing.assert_close(few.sum(dim=1), torch.ones(streams, 5).double())


def test_every_permutation_is_there_once() -> None:
    matrices = permutation_matrices(3)
    assert matrices.shape == (6, 3, 3)
    assert len({tuple(matrix.flatten().tolist()) for matrix in matrices}) == 6
    assert (matrices.sum(dim=1) == 1).all()
    assert (matrices.sum(dim=2) == 1).all()
    assert torch.equal(matrices[0], torch.eye(3))


LEARNING = ["attention", "streams", "dense", "dynamic_dense", "lambdas", "cross", "low_rank", "alternating", "siamese"]


@pytest.mark.parametrize(
    "residual", [*LEARNING, *({"kind": "streams", "mixing": m} for m in ("sinkhorn", "permutations"))], ids=str
)
def test_every_coefficient_learns(residual: Any) -> None:
    """A coefficient whose gradient vanishes at the start, and with it for ever, would never move."""
    model = spec(residual).build()
    start = {name: value.clone() for name, value in model.residual.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    tokens = some_tokens(model.spec)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
    # The first read of attention over depth has one source, and so has nothing to choose.
    idle = [name for name, value in model.residual.named_parameters() if torch.equal(value, start[name])]
    assert idle == []


@pytest.mark.parametrize("mixing", ["free", "sinkhorn", "permutations", "identity"])
def test_streams_do_not_stay_equal(mixing: str) -> None:
    model = spec({"kind": "streams", "mixing": mixing}).build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    tokens = some_tokens(model.spec)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
    kept: list[Tensor] = []
    close = model.residual.close
    model.residual.close = lambda state: (kept.append(state.streams), close(state))[1]
    with torch.no_grad():
        model(tokens)
    assert kept[0].std(dim=-2).max() > 1e-4


def test_a_stream_of_many_sources_is_small_unless_it_is_a_sum() -> None:
    tokens = torch.tensor([[1, 2, 3]])
    reads = {}
    for total in ("mean", "sum"):
        model = preset(
            "llama",
            vocab=8,
            width=32,
            depth=12,
            heads=2,
            hidden=32,
            max_seq=8,
            residual={"kind": "attention", "total": total},
        ).build()
        x = model.embedding(tokens)
        state = model.residual.open(x)
        for place in model.spec.places:
            state = model.residual.write(state, torch.zeros_like(x), Site(place.index, place.layer, place.role))
        reads[total] = model.residual.close(state).square().mean().item()
    assert reads["mean"] < 1e-6  # below the usual eps of 1e-5, which would change what the next norm returns
    assert reads["sum"] > 1e-4


def test_blocks_must_fit() -> None:
    with pytest.raises(InputError, match=r"attention\.block: expected a divisor of the 6 branches, got 4"):
        spec({"kind": "attention", "block": 4}).build()
    for field, value in (("streams", 0), ("rounds", 0)):
        with pytest.raises(InputError, match=rf"streams\.{field}: expected at least 1, got 0"):
            ROOMS["residual"].make("streams", **{field: value})


def test_the_step_of_a_schedule_is_saved_and_joins_layer_by_layer() -> None:
    model = spec({"kind": "schedule", "steps": 10}).build()
    model.residual.advance(15)
    other = spec({"kind": "schedule", "steps": 10}).build()
    other.load_state_dict(model.state_dict())
    x, y = torch.zeros(1, 1, WIDTH), torch.ones(1, 1, WIDTH)
    shares = [other.residual.write(x, y, Site(0, layer, "attention"))[0, 0, 0].item() for layer in range(3)]
    assert shares == pytest.approx([1.0, 0.75, 0.5])
