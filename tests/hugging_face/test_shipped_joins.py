"""Our joints against the joins of the Transformers classes that ship them, on random tensors in float64."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.axk2 import modeling_axk2
from transformers.models.beam import modeling_beam
from transformers.models.doge import modeling_doge
from transformers.models.inkling2 import modeling_inkling2
from transformers.models.muse_spark import modeling_muse_spark
from transformers.models.qwen4_exp import modeling_qwen4_exp
from transformers.models.zaya import modeling_zaya

from addnorm.catalogue import ROOMS
from addnorm.kernels.grouped_attention import problem_of, solve
from addnorm.residual import Parts, Residual, Site
from addnorm.shape import Shape

WIDTH = 8
SITES = tuple(Site(index, index // 2, "feedforward" if index % 2 else "attention") for index in range(4))
SHAPE = Shape(width=WIDTH, depth=2, heads=2, kv_heads=1, hidden=16, max_seq=8)
Join = Callable[[Tensor, Tensor], Tensor]


@pytest.fixture(autouse=True)
def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes that compute in float32 whatever the inputs' type do so in float64, so that formulas and not roundings are
    compared."""
    wide = ModuleType("torch")
    wide.__dict__.update(torch.__dict__, float32=torch.float64)
    monkeypatch.setattr(modeling_axk2, "torch", wide)
    monkeypatch.setattr(torch.Tensor, "float", lambda self: self)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def filled(module: nn.Module) -> nn.Module:
    """The module in float64 with its parameters at random."""
    with torch.no_grad():
        for seed, parameter in enumerate(module.double().parameters()):
            parameter.copy_(random(*parameter.shape, seed=seed))
    return module


def residual_of(kind: str, **fields: Any) -> Residual:
    residual: Residual = (
        ROOMS["residual"].make(kind, **fields).build(SHAPE, Parts(sites=SITES, norm=nn.RMSNorm, std=0.5))
    )
    filled(residual)
    return residual


def of_beam(index: int, ours: Residual) -> Join:
    return lambda x, y: modeling_beam.depth_scaled_residual_add(y, x, index + 2)


def of_muse_spark(index: int, ours: Residual) -> Join:
    config = SimpleNamespace(hidden_size=WIDTH, residual_gate_temperature=0.3)
    theirs = modeling_muse_spark.MuseSparkResidualGate(config).double()
    theirs.gate.data.copy_(ours.gate[index])
    return theirs


def of_zaya(index: int, ours: Residual) -> Join:
    theirs = modeling_zaya.ZayaResidualScaling(WIDTH).double()
    names = {"residual": "stream", "hidden_states": "output"}
    for name, role in names.items():
        getattr(theirs, f"{name}_scale").data.copy_(getattr(ours, f"{role}_scale")[index])
        getattr(theirs, f"{name}_bias").data.copy_(getattr(ours, f"{role}_shift")[index])
    return lambda x, y: theirs(y, x)


def of_doge(index: int, ours: Residual) -> Join:
    """The first join of the whole decoder layer, whose second branch is muted."""
    config = modeling_doge.DogeConfig(
        hidden_size=WIDTH, intermediate_size=16, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=1
    )
    layer = modeling_doge.DogeDecoderLayer(config, 0).double()

    def join(x: Tensor, y: Tensor) -> Tensor:
        layer.input_residual.data.copy_(ours.weight[index])
        layer.self_attn.forward = lambda **_: (y, None)
        layer.mlp.forward = torch.zeros_like
        return layer(x)

    return join


@pytest.mark.parametrize(
    ("kind", "theirs"),
    [
        ("depth_scaled", of_beam),
        ("variance_keeping", of_muse_spark),
        ("affine", of_zaya),
        ("stream_weight", of_doge),
    ],
)
def test_a_residual_joins_as_the_class_that_ships_it(kind: str, theirs: Callable[[int, Residual], Join]) -> None:
    ours, x, y = residual_of(kind), random(2, 5, WIDTH), random(2, 5, WIDTH, seed=1)
    for site in SITES:
        with torch.no_grad():
            torch.testing.assert_close(ours.write(x, y, site), theirs(site.index, ours)(x, y), rtol=0, atol=1e-12)


def test_gated_streams_are_read_and_written_as_in_qwen4_exp() -> None:
    ours, x = residual_of("gated_streams", streams=3, rank=2), random(2, 5, WIDTH)
    config = SimpleNamespace(hc_count=3, hidden_size=WIDTH, rms_norm_eps=1e-6, hc_lowrank=2)
    state, flat = ours.open(x), x.repeat(1, 1, 3)
    for site in SITES:
        theirs = modeling_qwen4_exp.Qwen4ExpTextGatedResidual(config).double()
        y = random(2, 5, WIDTH, seed=site.index)
        with torch.no_grad():
            theirs.hc_norm.weight.copy_(ours.gain[site.index].flatten() - 1)
            theirs.input_mix_weight_down.weight.copy_(ours.down[site.index])
            theirs.input_mix_weight_up.weight.copy_(ours.up[site.index])
            theirs.block_inject_weight.weight.copy_(ours.inject[site.index])
            read, kept, weights = theirs(flat)
            flat = kept + (y.unsqueeze(-2) * weights.unsqueeze(-1)).flatten(-2)
            mine, state = ours.read(state, site)
            state = ours.write(state, y, site)
        torch.testing.assert_close(mine, read, rtol=0, atol=1e-12)
        torch.testing.assert_close(state.streams.flatten(-2), flat, rtol=0, atol=1e-12)


def test_a_gated_norm_is_that_of_axk2() -> None:
    ours = filled(ROOMS["norm"].make("gated", rank=3, eps=1e-6).build(WIDTH, shift=False))
    theirs = modeling_axk2.AXK2GatedRMSNorm(
        SimpleNamespace(hidden_size=WIDTH, gated_norm_rank=3, rms_norm_eps=1e-6)
    ).double()
    theirs.norm.weight.data.copy_(ours.weight)
    theirs.mlp.fc1.weight.data.copy_(ours.down)
    theirs.mlp.fc2.weight.data.copy_(ours.up)
    x = random(2, 5, WIDTH)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-12)


def test_a_clip_is_that_of_inkling() -> None:
    ours, theirs = (
        ROOMS["norm"].make("clip", threshold=2.0).build(WIDTH, shift=False),
        modeling_inkling2.Inkling2L2Clip(2.0),
    )
    x = random(2, 5, WIDTH)
    assert torch.equal(ours(x), theirs(x))


def test_a_value_norm_is_that_of_inkling() -> None:
    values = ROOMS["values"].make("normed").build(SHAPE, vocab=11, std=0.02)
    own = random(2, 1, 5, 4)
    x = random(2, 5, WIDTH)
    got = values.join(0, own, [], x, torch.zeros(2, 5, dtype=torch.int64))
    torch.testing.assert_close(got, modeling_inkling2.Inkling2UnweightedRMSNorm(1e-6)(own), rtol=0, atol=1e-12)


@pytest.mark.parametrize("start", [0, 4])
def test_a_relative_bank_is_that_of_inkling(start: int) -> None:
    ours = filled(ROOMS["position"].make("relative_bank", rank=3, extent=4).build(SHAPE))
    theirs = modeling_inkling2.Inkling2RelativeLogits(3, 4).double()
    theirs.proj.data.copy_(ours.profiles[1])
    x = random(2, 5, WIDTH)
    states = (x @ ours.reads[1].T).unflatten(-1, (2, 3))
    queries, keys = torch.arange(start, start + 5), torch.arange(start + 5)
    expected = theirs(states, queries, keys)
    torch.testing.assert_close(ours.layer_bias(1, x, ours.prepare(start, 5, x)), expected, rtol=0, atol=1e-12)


def test_a_sink_by_query_is_that_of_inkling() -> None:
    q, k, v, sinks = random(2, 4, 5, 8), random(2, 2, 5, 8, seed=1), random(2, 2, 5, 8, seed=2), random(2, 4, 5, seed=3)
    hidden = torch.full((5, 5), float("-inf")).triu(1).double()
    module = nn.Module().eval()
    module.num_key_value_groups = 2
    expected, _ = modeling_inkling2.eager_attention_forward(
        module, q, k, v, hidden, 8**-0.5, sinks=sinks.unsqueeze(-1), position_bias=None
    )
    problem = replace(problem_of([q], [k], v, [8**-0.5], causal=True), sinks=sinks)
    got = solve(problem, "streaming")
    torch.testing.assert_close(got.transpose(1, 2), expected, rtol=0, atol=1e-12)
