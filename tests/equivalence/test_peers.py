"""Residuals across depth against other libraries' code, where it is right: the same numbers up to rounding."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor

from addnorm import preset
from addnorm.kernels.depth_mixing import sinkhorn
from addnorm.residual import Residual, Site
from addnorm.testing.laws import subject

# What is compared is whole residuals in float64; other libraries' imports are made once, in the session that has them anyway.
pytestmark = pytest.mark.plain

WIDTH, DEPTH, STREAMS, ROUNDS = 6, 3, 3, 20
EPS = torch.finfo(torch.float32).eps


def moved(**residual: object) -> Residual:
    """The residual of a model with all parameters off their start."""
    sizes = {"vocab": 11, "width": WIDTH, "depth": DEPTH, "heads": 1, "kv_heads": 1, "hidden": 8, "max_seq": 16}
    return subject(preset("llama", residual=residual, init_std=0.5, **sizes)).residual


def numbers(*shape: int, seed: int = 2) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sites(residual: Residual) -> list[Site]:
    return [Site(place.index, place.layer, place.role) for place in residual.sites]


@pytest.fixture
def naive_attnres() -> Callable[..., Tensor]:
    """flash-linear-attention's own reference, without the library's kernels, whose import looks for a GPU."""
    pytest.importorskip("einops")
    package = importlib.util.find_spec("fla")
    if package is None or package.origin is None:
        pytest.skip("fla-core is not installed")
    path = Path(package.origin).parent / "ops/attnres/naive.py"
    if not path.exists():
        pytest.skip(f"fla-core has no {path.name} for attention residuals")
    spec = importlib.util.spec_from_file_location("naive_attnres", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.naive_attnres


@pytest.mark.parametrize("block", [1, 2])
def test_attention_over_depth_equals_flash_linear_attention(block: int, naive_attnres: Callable[..., Tensor]) -> None:
    residual = moved(kind="attention", block=block)
    state = residual.open(numbers(2, 3, WIDTH))
    with torch.no_grad():
        for index, site in enumerate([*sites(residual), None]):
            read = residual.close(state) if site is None else residual.read(state, site)[0]
            sources = [*state.vectors, *([] if state.unfinished is None else [state.unfinished])]
            query, gain = residual.query[index], residual.gain[index]
            theirs, weights = naive_attnres(query, sources, gain, rms_eps=residual.eps, return_weights=True)
            stacked = torch.stack(sources)
            # In float32: WIDTH products per logit, each entry of which is rounded; weights of the sources err by twice that.
            logits = (stacked / stacked.square().mean(-1, keepdim=True).sqrt() * gain * query).abs().sum(-1).max()
            allowed = EPS * (2 * (WIDTH + 8) * logits + len(sources) + 2) * stacked.abs().max()
            assert (theirs - read).abs().max() <= allowed
            assert len(sources) == 1 or (weights.max() - weights.min()) > 1e-3  # the sources are not averaged alone
            if site is not None:
                state = residual.write(state, torch.tanh(read) + numbers(2, 3, WIDTH, seed=index), site)


@pytest.fixture
def deepseek_v4() -> ModuleType:
    """The module of Transformers, of the versions that have the model."""
    name = "transformers.models.deepseek_v4.modeling_deepseek_v4"
    return pytest.importorskip(name, reason="this version of Transformers has no deepseek_v4")


def test_sinkhorn_streams_equal_transformers(deepseek_v4: ModuleType) -> None:
    """Its matrix is indexed by source and target, and so applied transposed."""
    residual = moved(kind="streams", streams=STREAMS, mixing="sinkhorn", rounds=ROUNDS)
    config = SimpleNamespace(
        hc_mult=STREAMS, hidden_size=WIDTH, hc_sinkhorn_iters=ROUNDS, hc_eps=0.0, rms_norm_eps=1e-8
    )
    peer = deepseek_v4.DeepseekV4HyperConnection(config)
    by_source = torch.arange(STREAMS**2).view(STREAMS, STREAMS).T.flatten()
    order = torch.cat([torch.arange(2 * STREAMS), 2 * STREAMS + by_source])
    state = residual.open(numbers(2, 3, WIDTH))
    with torch.no_grad():
        for site in sites(residual):
            peer.fn.copy_(residual.weight[site.index][order])
            peer.base.copy_(residual.offset[site.index][order])
            peer.scale.copy_(residual.factor[site.index])
            read, wired = residual.read(state, site)
            post, comb, collapsed = peer(state.streams.contiguous())
            flat = state.streams.flatten(-2)
            products = (flat / flat.square().mean(-1, keepdim=True).sqrt()).abs() @ residual.weight[site.index].abs().T
            logits = 1 + (products * residual.factor[site.index].abs().max()).max() + residual.offset.abs().max()
            # In float32: the logits' rounding, and that of 2 * ROUNDS divisions by sums, whose errors add up at most.
            allowed = EPS * (2 * (STREAMS * WIDTH + 8) * logits + 2 * ROUNDS * (STREAMS + 2))
            assert (post - wired.post).abs().max() <= 2 * allowed
            assert (comb.mT - wired.mix).abs().max() <= allowed
            assert (comb - wired.mix).abs().max() > 100 * allowed  # as it stands, it is another matrix
            assert (collapsed - read).abs().max() <= STREAMS * allowed * state.streams.abs().max()
            state = residual.write(wired, torch.tanh(read) + numbers(2, 3, WIDTH, seed=site.index), site)


def test_free_streams_equal_hyper_connections() -> None:
    """The library adds the streams up at the end, and its norm has no eps: streams are so large that ours has no effect."""
    peers = pytest.importorskip("hyper_connections")
    large = 2.0**30
    residual = moved(kind="streams", streams=STREAMS)
    start, expand, reduce = peers.get_init_and_expand_reduce_stream_functions(STREAMS, dim=WIDTH)
    x = large * numbers(2, 4, WIDTH)
    state, streams = residual.open(x), expand(x)
    with torch.no_grad():
        residual.factor[:, 2] = residual.factor[:, 0]  # the library has one factor for both
        for site in sites(residual):
            peer = start(layer_index=site.index).double()
            if site.index < STREAMS:  # at the start, both read one stream alone, and the same one
                fresh = preset(
                    "llama", residual={"kind": "streams", "streams": STREAMS}, width=WIDTH, heads=1, depth=DEPTH
                )
                pre = fresh.build_residual().pre[site.index]
                assert torch.equal(pre.double(), peer.static_alpha[:, 0])
            weight = residual.weight[site.index]
            peer.static_alpha.copy_(torch.cat([residual.pre[site.index][:, None], residual.mix[site.index].T], dim=1))
            peer.static_beta.copy_(residual.post[site.index])
            peer.dynamic_alpha_fn.copy_(torch.cat([weight[:1], weight[2:]]).T)
            peer.dynamic_beta_fn.copy_(weight[1])
            peer.dynamic_alpha_scale.copy_(residual.factor[site.index, 0])
            peer.dynamic_beta_scale.copy_(residual.factor[site.index, 1])
            read, state = residual.read(state, site)
            theirs, join = peer(streams)
            torch.testing.assert_close(read, theirs, rtol=1e-12, atol=large * 1e-12)
            y = large * torch.tanh(read / large + numbers(2, 4, WIDTH, seed=site.index))
            state, streams = residual.write(state, y, site), join(y)
    torch.testing.assert_close(STREAMS * residual.close(state), reduce(streams), rtol=1e-12, atol=large * 1e-12)


def test_sinkhorn_equals_hyper_connections() -> None:
    peers = pytest.importorskip("hyper_connections.manifold_constrained_hyper_connections")
    logits = numbers(5, STREAMS, STREAMS)
    for rounds in (1, ROUNDS):
        ours = sinkhorn(logits.movedim(0, -1), rounds).movedim(-1, 0)
        allowed = EPS * (2 * logits.abs().max() + 2 * rounds * (STREAMS + 2))  # float32, as above
        assert (peers.sinkhorn_knopps(logits, rounds) - ours).abs().max() <= allowed
