"""Sub-LN and Admin against their formulas, written out from the parameters, in float64."""

import math

import pytest
import torch
from comparing import make
from torch import Tensor
from torch.nn import functional as F

from addnorm import ModelSpec
from addnorm.bias import Biases
from addnorm.insight.depth import depth_matrix, identities
from addnorm.testing.contract import shrunk
from addnorm.testing.laws import rounding, some_tokens, subject

pytestmark = pytest.mark.plain  # numbers; the laws check the shapes


def normed(norm: object, x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight


def test_sub_ln_has_a_norm_before_each_matrix_that_writes() -> None:
    spec = shrunk(
        ModelSpec(placement=make("placement", "sub_ln"), position=make("position", "none")),
        depth=1, heads=1, activation="gelu",
    )  # fmt: skip
    model, tokens = subject(spec), some_tokens(spec)
    attention, feedforward = model.layers[0].attention, model.layers[0].feedforward
    x = model.embedding.weight[tokens]
    h = normed(attention.input_norm, x)
    q, k, v = (h @ matrix.weight.T for matrix in (attention.body.query, attention.body.key, attention.body.value))
    hidden = torch.full((9, 9), -math.inf).triu(1)
    attended = torch.softmax(q @ k.mT / spec.width**0.5 + hidden, dim=-1) @ v
    x = x + normed(attention.body.inner_norm, attended) @ attention.body.output.weight.T
    inner = F.gelu(normed(feedforward.input_norm, x) @ feedforward.body.up.weight.T)
    x = x + normed(feedforward.body.inner_norm, inner) @ feedforward.body.down.weight.T
    expected = normed(model.final_norm, x) @ model.head.weight.T
    torch.testing.assert_close(model(tokens), expected, rtol=1e-11, atol=1e-11)


def test_sub_ln_forgets_the_size_of_what_enters_an_output_matrix() -> None:
    spec = shrunk(ModelSpec(placement=make("placement", "sub_ln"), norm=make("norm", "rms", eps=1e-30)))
    model, tokens = subject(spec), some_tokens(spec)
    with torch.no_grad():
        before = model(tokens)
        for layer in model.layers:
            layer.attention.body.value.weight *= 8
            layer.feedforward.body.up.weight /= 8
        torch.testing.assert_close(model(tokens), before, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("depth", [1, 2, 12])
def test_sub_ln_starts_with_larger_matrices(depth: int) -> None:
    starts = {}
    for kind in ("pre", "sub_ln"):
        spec = shrunk(ModelSpec(placement=make("placement", kind), bias=Biases.all(False)), depth=depth)
        starts[kind] = spec.build().state_dict()
    gain = math.sqrt(math.log(2 * depth))
    for name, value in starts["pre"].items():
        raised = any(part in name for part in ("value.", "attention.body.output.", "feedforward.body."))
        torch.testing.assert_close(starts["sub_ln"][name], value * gain if raised else value)


def test_admin_starts_heavier_the_more_branches_came_before() -> None:
    model = shrunk(ModelSpec(residual=make("residual", "admin", variance=0.5)), depth=2).build()
    assert model.residual.omega.shape == (4, 32)
    for row, expected in zip(model.residual.omega, (1.0, 1.5, 2.0, 2.5), strict=True):
        torch.testing.assert_close(row, torch.full((32,), expected**0.5))


def test_admin_weighs_each_entry_of_the_stream() -> None:
    spec = shrunk(ModelSpec(residual=make("residual", "admin"), placement=make("placement", "post")), depth=1)
    model, tokens = subject(spec), some_tokens(spec)
    seen: list[tuple[Tensor, Tensor]] = []
    for name in ("attention", "feedforward"):
        branch = getattr(model.layers[0], name)
        branch.register_forward_hook(lambda _, args, y: seen.append((args[0], y)))
        branch.stream_norm.register_forward_pre_hook(lambda _, args: seen.append((args[0], args[0])))
    with torch.no_grad():
        model(tokens)
    for site in range(2):
        (x, y), (before, _) = seen[2 * site], seen[2 * site + 1]
        torch.testing.assert_close(before, model.residual.omega[site] * x + y)


def attending_over_depth(**fields: object) -> ModelSpec:
    values = make("values", "depth_attention", **fields)
    return shrunk(
        ModelSpec(values=values, position=make("position", "learned"), bias=Biases.all(True)), depth=3, kv_heads=2
    )


def test_depth_attention_mixes_values_by_products_of_queries_and_keys() -> None:
    model = subject(attending_over_depth())
    tokens = some_tokens(model.spec)
    bodies, seen = [layer.attention.body for layer in model.layers], []
    for body in bodies:
        body.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    reads = identities(model, tokens, "values")
    projected = [[], [], []]
    for body, x in zip(bodies, seen, strict=False):
        for each, matrix, bias in zip(
            projected,
            (body.query, body.key, body.value),
            (body.qk_bias.q, body.qk_bias.k, body.value.bias),
            strict=True,
        ):
            each.append((x @ matrix.weight.T + bias).unflatten(-1, (-1, 8)))  # [batch, seq, heads, entries]
    for layer, part in enumerate(reads):
        query = projected[0][layer].unflatten(2, (2, -1)).mean(3)
        weights = torch.stack([(query * key).sum(-1) / 8**0.5 for key in projected[1][: layer + 1]]).softmax(0)
        expected = sum(w[..., None] * v for w, v in zip(weights, projected[2], strict=False))
        torch.testing.assert_close(part.read, expected.transpose(1, 2), rtol=0, atol=1e-12)
        got = depth_matrix(model, tokens, "values").weights[layer, : layer + 1]
        torch.testing.assert_close(got, weights.mean((1, 2, 3)).detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("layers", [range(3), [1]])
def test_depth_attention_forgives_a_shift_of_all_layers_keys_alone(layers: list[int]) -> None:
    model = subject(attending_over_depth())
    tokens = some_tokens(model.spec)
    with torch.no_grad():
        before, allowed = model(tokens), rounding(model, tokens)
        moved = torch.randn(16, generator=torch.Generator().manual_seed(3)).double()
        for layer in layers:
            model.layers[layer].attention.body.qk_bias.k += moved
        gap = (model(tokens) - before).abs().max()
    assert (gap <= 100 * allowed) if len(layers) == 3 else (gap > 1e-4)
