"""What proves each joint of shipped architectures: its own fact, in float64, beyond what it declares to equal."""

from dataclasses import replace

import pytest
import torch
from comparing import make, tiny
from torch import Tensor

import addnorm
from addnorm.kernels.grouped_attention import problem_of, solve
from addnorm.model.forgetting import Forgetting
from addnorm.norm.clip import LengthClip
from addnorm.residual import Parts, Residual, Site
from addnorm.shape import Shape
from addnorm.testing.laws import rounding, some_tokens, subject

pytestmark = pytest.mark.plain  # numbers; the laws check the shapes

SITES = tuple(Site(index, index // 2, "feedforward" if index % 2 else "attention") for index in range(6))
SHAPE = Shape(width=8, depth=3, heads=2, kv_heads=1, hidden=16, max_seq=8)


def built(kind: str, **fields: object) -> Residual:
    """A residual of six sites in float64, with its parameters at random."""
    residual = make("residual", kind, **fields).build(SHAPE, Parts(sites=SITES, norm=torch.nn.RMSNorm, std=0.5))
    residual.sites = SITES
    draws = torch.Generator().manual_seed(1)
    for parameter in residual.double().parameters():
        torch.nn.init.normal_(parameter, generator=draws)
    return residual


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def walked(residual: Residual, outputs: Tensor) -> list[Tensor]:
    """The view after every site, of a residual that joins these outputs, the embeddings first."""
    state, views = residual.open(outputs[0]), []
    for site, y in zip(SITES, outputs[1:], strict=True):
        _, state = residual.read(state, site)
        state = residual.write(state, y, site)
        views.append(residual.view(state))
    return views


def test_the_depth_scaled_sum_is_the_plain_sum_over_the_root_of_its_outputs() -> None:
    outputs = random(7, 2, 5, 8)
    for k, view in enumerate(walked(built("depth_scaled"), outputs), start=2):
        torch.testing.assert_close(view, outputs[:k].sum(0) / k**0.5, rtol=0, atol=4e-15)


def test_squared_weights_of_the_variance_keeping_gate_add_up_to_one() -> None:
    residual = built("variance_keeping", floor=0.0)
    for site in SITES:
        alpha, beta = residual.weights(site)
        torch.testing.assert_close(alpha**2 + beta**2, torch.ones_like(alpha), rtol=0, atol=5e-16)
    floored = built("variance_keeping", floor=1e-3)
    floored.gate.data.fill_(1e4)  # where 1 - beta² is below the floor, the stream keeps a weight
    torch.testing.assert_close(floored.weights(SITES[0])[0], torch.full((8,), 1e-3**0.5, dtype=torch.float64))


def test_with_gates_by_depth_the_variance_keeping_gate_is_the_depth_scaled_sum() -> None:
    residual, outputs = built("variance_keeping"), random(7, 2, 5, 8)
    with torch.no_grad():
        for k, row in enumerate(residual.gate, start=2):
            row.fill_(residual.temperature * torch.logit(torch.tensor(k**-0.5, dtype=torch.float64)))
        pairs = zip(walked(residual, outputs), walked(built("depth_scaled"), outputs), strict=True)
        for mine, theirs in pairs:
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-14)


def test_one_number_per_site_of_the_variance_keeping_gate_is_a_gauge() -> None:
    norm = make("norm", "rms", eps=1e-30)
    gated = subject(tiny(residual=make("residual", "variance_keeping"), norm=norm))
    other = subject(tiny(residual=make("residual", "rezero"), norm=norm))
    tokens = some_tokens(gated.spec)
    with torch.no_grad():
        gated.residual.gate.copy_(gated.residual.gate[:, :1].expand_as(gated.residual.gate))
        size = torch.ones((), dtype=torch.float64)
        for place in gated.spec.places:
            alpha, beta = gated.residual.weights(place)
            size = size * alpha[0]
            other.residual.alpha[place.index] = beta[0] / size
        torch.testing.assert_close(gated(tokens), other(tokens), rtol=0, atol=rounding(gated, tokens))
        other.residual.alpha[1] *= 2
        assert (gated(tokens) - other(tokens)).abs().max() > 1e-2


def test_half_of_an_affine_residuals_shifts_are_redundant() -> None:
    model = subject(tiny(residual=make("residual", "affine")))
    tokens, moved = some_tokens(model.spec), random(6, 32)
    with torch.no_grad():
        before, allowed = model(tokens), rounding(model, tokens)
        residual = model.residual
        residual.stream_shift += moved / residual.stream_scale
        residual.output_shift -= moved / residual.output_scale
        torch.testing.assert_close(model(tokens), before, rtol=0, atol=100 * allowed)
        residual.output_shift += moved / residual.output_scale
        assert (model(tokens) - before).abs().max() > 1e-2


def test_the_audit_finds_the_redundant_half_of_the_shifts() -> None:
    sizes = {"vocab": 11, "width": 8, "depth": 1, "heads": 2, "hidden": 12, "max_seq": 8}
    model = addnorm.preset("llama", **sizes, residual="affine").build(seed=0).eval()
    audit = addnorm.audit(model, torch.randint(11, (2, 6), generator=torch.Generator().manual_seed(0)))
    free = {each.parameter: each.absorbable_dof for each in audit.findings if "shift" in each.parameter}
    assert len(free) == 2
    assert all(dof == 2 * 8 for dof in free.values()), "each of the two vectors per branch can take the other's place"


def test_one_number_per_site_of_a_stream_weight_is_a_lambda() -> None:
    norm = make("norm", "rms", eps=1e-30)
    one = subject(tiny(residual=make("residual", "stream_weight"), norm=norm))
    other = subject(tiny(residual=make("residual", "lambdas"), norm=norm))
    tokens, lambdas = some_tokens(one.spec), torch.tensor([0.7, 1.2, 0.9], dtype=torch.float64)
    with torch.no_grad():
        one.residual.weight.fill_(1.0)
        one.residual.weight[::2] = lambdas[:, None]  # a norm does not see what is multiplied before or after it reads
        other.residual.stream.copy_(lambdas)
        other.residual.embedding.zero_()
        torch.testing.assert_close(one(tokens), other(tokens), rtol=0, atol=rounding(one, tokens))


def test_without_residuals_nothing_of_the_tokens_is_left_behind_a_muted_branch() -> None:
    model = subject(tiny(residual=make("residual", "none")))
    with torch.no_grad():
        last = model.layers[-1].feedforward.body.down
        last.weight.zero_()
        logits = model(some_tokens(model.spec))
    assert torch.equal(logits, logits[:1, :1].expand_as(logits))


def test_a_sink_by_query_is_a_gate_on_the_softmax() -> None:
    q, k, v, sinks = random(2, 4, 5, 8), random(2, 2, 5, 8, seed=1), random(2, 2, 5, 8, seed=2), random(2, 4, 5, seed=3)
    scale = 8**-0.5
    got = solve(replace(problem_of([q], [k], v, [scale], causal=True), sinks=sinks), "streaming")
    scores = q @ k.repeat_interleave(2, 1).mT * scale
    scores = scores.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), float("-inf"))
    gates = torch.sigmoid(scores.logsumexp(-1) - sinks)
    expected = gates[..., None] * (scores.softmax(-1) @ v.repeat_interleave(2, 1))
    torch.testing.assert_close(got, expected, rtol=0, atol=2e-15)


@pytest.mark.parametrize(("position", "redundant"), [("learned", True), ("rope", False)])
def test_a_sink_by_query_takes_the_key_bias_over(position: str, redundant: bool) -> None:
    bias = {"q": False, "k": True}
    spec = tiny(
        sink=make("sink", "query"), position=make("position", position), bias=addnorm.preset("llama", bias=bias).bias
    )
    model = subject(spec)
    tokens = some_tokens(spec)
    with torch.no_grad():
        before, allowed = model(tokens), rounding(model, tokens)
        for number, layer in enumerate(model.layers):
            body = layer.attention.body
            moved = random(2, 8, seed=number)  # of every key head
            by_head = body.query.weight.view(2, 2, 8, 32)  # [key head, query head of its group, entry, width]
            model.sink.weight[number] += torch.einsum("kgew,ke->kgw", by_head, moved).flatten(0, 1) / 8**0.5
            body.qk_bias.k += moved.flatten()
        gap = (model(tokens) - before).abs().max()
    assert (gap <= 100 * allowed) if redundant else (gap > 1e-3)


@pytest.mark.parametrize(("position", "absorbed"), [("learned", 8), ("rope", 0)])
def test_the_audit_counts_a_key_bias_that_a_sink_by_query_absorbs(position: str, absorbed: int) -> None:
    sizes = {"vocab": 11, "width": 8, "depth": 1, "heads": 2, "kv_heads": 2, "hidden": 12, "max_seq": 8}
    model = addnorm.preset("llama", **sizes, position=position, bias={"k": True}, sink="query").build(seed=0).eval()
    with torch.no_grad():
        torch.nn.init.normal_(model.sink.weight, std=0.1, generator=torch.Generator().manual_seed(0))
    tokens = torch.randint(11, (2, 6), generator=torch.Generator().manual_seed(0))
    audit = addnorm.audit(model, tokens, track="qk_bias|sink", methods="numeric")
    assert audit.finding("layers.0.attention.body.qk_bias.k").numeric_absorbable_dof == absorbed


def test_a_clip_shortens_what_is_longer_than_its_threshold() -> None:
    x, clip = random(3, 5, 8), LengthClip(2.0, 0.0)
    lengths = clip(x).norm(dim=-1)
    torch.testing.assert_close(lengths, x.norm(dim=-1).clamp(max=2.0), rtol=1e-15, atol=0)
    assert (x.norm(dim=-1) < 2).any()


def test_a_mixture_that_all_queries_share_is_a_number_per_distance() -> None:
    position = make("position", "relative_bank", rank=3, extent=4).build(SHAPE).double()
    torch.nn.init.normal_(position.reads)
    torch.nn.init.normal_(position.profiles)
    x = random(1, 1, 8).expand(2, 6, 8)
    bias = position.layer_bias(1, x, position.prepare(0, 6, x))
    for distance in range(6):
        along = bias.diagonal(-distance, dim1=-2, dim2=-1)
        assert torch.equal(along, along[:1, :, :1].expand_as(along))
        assert bool(along.any()) == (distance < 4)
    assert not bias.triu(1).any()


def test_the_mean_of_wide_streams_is_the_plain_stream_at_every_branch() -> None:
    outputs = random(7, 2, 5, 8)
    residual = (
        make("residual", "wide", spread=2.0).build(SHAPE, Parts(sites=SITES, norm=torch.nn.RMSNorm, std=0.5)).double()
    )
    assert residual.beta.unique().numel() == 4
    for k, view in enumerate(walked(residual, outputs), start=2):
        torch.testing.assert_close(view, outputs[:k].sum(0), rtol=0, atol=4e-15)


def test_wide_streams_that_keep_less_differ_from_the_plain_stream() -> None:
    outputs = random(7, 2, 5, 8)
    forgetting = make("residual", "wide", retention=0.5).build(
        SHAPE, Parts(sites=SITES, norm=torch.nn.RMSNorm, std=0.5)
    )
    expected = outputs[0]
    for y, view in zip(outputs[1:], walked(forgetting.double(), outputs), strict=True):
        expected = 0.5 * expected + y
        torch.testing.assert_close(view, expected, rtol=0, atol=4e-15)


def test_rotations_keep_the_squares_of_orthogonal_streams() -> None:
    residual, streams = built("orthogonal_streams"), random(2, 5, 4, 8)
    state = residual.open(random(2, 5, 8))._replace(streams=streams)
    _, state = residual.read(state, SITES[2])
    turned = residual.write(state, torch.zeros(2, 5, 8, dtype=torch.float64), SITES[2]).streams
    torch.testing.assert_close(turned.square().sum((-1, -2)), streams.square().sum((-1, -2)), rtol=2e-14, atol=0)
    assert (turned.mean(-2) - streams.mean(-2)).abs().max() > 1e-2, "the mean is not kept"
    identity = torch.eye(4, dtype=torch.float64).expand_as(state.mix)
    torch.testing.assert_close(state.mix @ state.mix.mT, identity, rtol=0, atol=4e-15)


def test_shut_gates_leave_all_streams_equal() -> None:
    residual = built("gated_streams")
    with torch.no_grad():
        residual.up.zero_()
        residual.inject.zero_()
        outputs, state = random(7, 2, 5, 8), None
        for site, y in zip(SITES, outputs[1:], strict=True):
            _, state = residual.read(residual.open(outputs[0]) if state is None else state, site)
            state = residual.write(state, y, site)
    assert state is not None
    torch.testing.assert_close(state.streams[..., 0, :], outputs.sum(0), rtol=0, atol=4e-15)
    assert torch.equal(state.streams, state.streams[..., :1, :].expand_as(state.streams))


@pytest.mark.parametrize(
    "fields",
    [
        {"column": "earlier"},
        {"scores": "sum"},
        {"scores": "weighted"},
        {"score_cap": 2.0},
        {"windows": (3,)},
        {"forgetting": Forgetting()},
        {"residual": "replay"},
    ],
)
def test_a_sink_by_query_joins_what_a_sink_by_head_joins(fields: dict[str, object]) -> None:
    """Logits and every gradient by tiles or rows of scores are those of the definition, and decoding is exact."""
    parts = {
        name: make(name, kind) if name in ("scores", "residual", "column") else kind for name, kind in fields.items()
    }
    found = []
    for attention in ("auto", "reference"):
        model = subject(tiny(sink=make("sink", "query"), attention=attention, **parts))
        tokens = some_tokens(model.spec)
        logits = model(tokens)
        numbers = list(model.parameters())
        of_all = torch.autograd.grad(logits.square().mean(), numbers, materialize_grads=True)
        found.append((logits, *of_all))
        place = next(at for at, each in enumerate(numbers) if each is model.sink.weight)
        assert of_all[place].any()
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)
    cache = model.new_cache()
    with torch.no_grad():
        steps = torch.cat([model(token, cache=cache) for token in tokens.split(1, dim=1)], dim=1)
        torch.testing.assert_close(steps, model(tokens), rtol=0, atol=1e-11)


def test_a_sink_by_query_needs_a_softmax() -> None:
    with pytest.raises(addnorm.errors.InputError, match="sink: expected 'none' with normalisation 'softpick'"):
        addnorm.preset("llama", sink="query", normalisation="softpick")


def mixing(residual: Residual, logits: Tensor) -> Tensor:
    """The matrix of streams for these logits."""
    return residual._matrix(logits)  # type: ignore[operator]


@pytest.mark.parametrize("streams", [2, 4, 8])
def test_kronecker_mixings_are_balanced_exactly(streams: int) -> None:
    residual = built("kronecker_streams", streams=streams)
    matrix = mixing(residual, 3 * random(5, 7, streams.bit_length() - 1))
    assert matrix.shape == (5, 7, streams, streams)
    ones = torch.ones(5, 7, streams, dtype=torch.float64)
    for axis in (-1, -2):
        torch.testing.assert_close(matrix.sum(axis), ones, rtol=0, atol=streams * torch.finfo(torch.float64).eps)
    assert (matrix >= 0).all()
    torch.testing.assert_close(matrix[0, 0] @ matrix[1, 1], matrix[1, 1] @ matrix[0, 0], rtol=0, atol=1e-15)


def test_one_kronecker_factor_mixes_two_streams_as_permutations_do() -> None:
    logit = random(5, 1)
    both = torch.cat((logit, torch.zeros_like(logit)), dim=-1)  # of the identity and of the swap
    permuted = mixing(built("streams", streams=2, mixing="permutations"), both)
    torch.testing.assert_close(mixing(built("kronecker_streams", streams=2), logit), permuted, rtol=0, atol=4e-16)


def test_floors_leave_hyper_connections_nearly_balanced() -> None:
    matrix = mixing(built("hyper_connections", streams=3, eps=1e-6), random(5, 9))
    ones = torch.ones(5, 3, dtype=torch.float64)
    torch.testing.assert_close(
        matrix.sum(-1), ones, rtol=0, atol=3e-6
    )  # of the last division, whose divisor has the floor
    unfloored = mixing(built("streams", streams=3, mixing="sinkhorn"), random(5, 9))
    # Each of 41 steps moves the entries of a row by the floor, and the row's sum by as much again.
    torch.testing.assert_close(matrix, unfloored, rtol=0, atol=(2 * 20 + 1) * (3 + 1) * 1e-6)
