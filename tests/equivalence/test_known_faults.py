"""Faults that other libraries shipped in joints across depth, each shown to be absent here.

Two more are tested elsewhere: a future that leaks (the law `is_causal`), and attention over depth whose stream falls below the
norms' eps (`test_depth_mixing`, and the note of `addnorm plan`).
"""

import pytest
import torch
from torch import Tensor, nn

from addnorm import ModelSpec, preset
from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.kernels.depth_mixing import sinkhorn
from addnorm.residual import Site
from addnorm.roles import MATRIX_ROLES, roles
from addnorm.testing.laws import some_tokens, subject

pytestmark = pytest.mark.plain  # parameters and gradients; the laws run with the shape checker


def spec(residual: object, **changes: object) -> ModelSpec:
    sizes = {"vocab": 11, "width": 8, "depth": 3, "heads": 2, "kv_heads": 1, "hidden": 8, "max_seq": 16}
    return preset("llama", residual=residual, **(sizes | {"init_std": 0.5} | changes))


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


MIXED = ["sinkhorn", "permutations"]


@pytest.mark.parametrize("mixing", MIXED)
def test_mixing_can_be_learned_from_the_start(mixing: str) -> None:
    """Off-identity logits of -8 at temperature 0.05 give weights of 3e-70, whose gradient is 4e-68 for ever."""
    model = spec({"kind": "streams", "mixing": mixing}).build().double()
    with torch.no_grad():  # streams that are equal, as at the entry, are mixed to themselves whatever the weights
        model.residual.offset[:, :8] += numbers(6, 8)
    nn.functional.cross_entropy(
        model(some_tokens(model.spec)).flatten(0, 1), some_tokens(model.spec).flatten()
    ).backward()
    # The first site finds equal streams, and what the last one mixes is read as a mean, which mixing keeps.
    later = model.residual.offset.grad[1:-1, 8:].abs()
    largest = max(value.grad.abs().max() for value in model.parameters())
    assert (later.amax(dim=1) > 1e-6 * largest).all()


@pytest.mark.parametrize("mixing", MIXED)
def test_no_stream_becomes_the_sum_of_all(mixing: str) -> None:
    """Balancing a slice of one row, whose columns add up to one by themselves, makes each new stream a sum of all."""
    residual = subject(spec({"kind": "streams", "mixing": mixing})).residual
    streams = residual.open(numbers(2, 3, 8))._replace(streams=numbers(2, 3, 4, 8))
    with torch.no_grad():
        for place in residual.sites:
            site = Site(place.index, place.layer, place.role)
            _, wired = residual.read(streams, site)
            mixed = residual.write(wired, torch.zeros(2, 3, 8).double(), site)
            torch.testing.assert_close(wired.mix.sum(dim=-1), torch.ones(2, 3, 4).double())
            torch.testing.assert_close(mixed.streams.mean(dim=-2), streams.streams.mean(dim=-2), rtol=1e-6, atol=1e-6)


def test_sinkhorn_is_not_computed_in_bfloat16() -> None:
    """In bfloat16, twenty rounds leave rows and columns that miss one by a hundredth and more."""
    model = subject(spec({"kind": "streams", "mixing": "sinkhorn"})).to(torch.bfloat16)
    streams = numbers(2, 3, 4, 8).to(torch.bfloat16)
    site = Site(0, 0, "attention")
    logits: list[Tensor] = []
    matrix = model.residual._matrix
    model.residual._matrix = lambda mixed: (logits.append(mixed), matrix(mixed))[1]
    with torch.no_grad():
        _, wired = model.residual.read(model.residual.open(streams[:, :, 0])._replace(streams=streams), site)
    square = logits[0].double().unflatten(-1, (4, 4)).movedim((-2, -1), (0, 1))
    exact = sinkhorn(square, rounds=20).movedim((0, 1), (-2, -1))
    assert logits[0].dtype == torch.float32
    assert wired.mix.dtype == torch.bfloat16
    assert (wired.mix.double() - exact).abs().max() <= 2**-9  # rounded once, at the end; no weight is above one


def test_a_forward_pass_changes_no_parameter() -> None:
    """Clamping coefficients in place, inside forward, moves what the optimizer holds."""
    for residual in ROOMS["residual"].kinds():
        model = spec(residual).build()
        with torch.no_grad():
            for value in model.residual.parameters():
                value.copy_(1000 * value.sign() + 500)  # beyond any bound that a mechanism could have
        start = {name: value.clone() for name, value in model.named_parameters()}
        model.train()(some_tokens(model.spec))
        changed = [name for name, value in model.named_parameters() if not torch.equal(value, start[name])]
        assert changed == [], residual


def test_a_norm_on_a_stream_that_is_not_there_is_refused() -> None:
    """A residual that reads its own history would read past such a norm, so that `post` were `none` with idle gains."""
    refusing = [
        kind for kind in ROOMS["residual"].kinds() if "stream" in ROOMS["residual"].make(kind).refused_sockets()
    ]
    assert {"attention", "streams", "alternating"} <= {*refusing}
    for kind in ROOMS["residual"].kinds():
        if kind in refusing:
            with pytest.raises(
                InputError, match=rf"placement: expected no norm .* residual '{kind}', because .*got 'post'"
            ):
                spec(kind, placement="post")
        else:
            model = subject(spec(kind, placement="post"))
            gains = [value for name, value in model.named_parameters() if ".stream_norm." in name]
            model(some_tokens(model.spec)).square().sum().backward()
            assert gains
            assert all(value.grad.abs().max() > 0 for value in gains), kind


def test_no_coefficient_is_taken_for_a_matrix() -> None:
    """Two axes, of sites and streams or of sites and sources, are no reason for weight decay."""
    # Of vectors to vectors or to numbers, and so matrices.
    maps = {"weight", "up", "down", "gate", "narrow", "wide", "inject", "close_weight", "entry", "exit", "router"}
    for residual in ROOMS["residual"].kinds():
        model = spec(residual).build()
        role = roles(model)
        for name, value in model.residual.named_parameters():
            is_matrix = role[f"residual.{name}"] in MATRIX_ROLES
            assert not is_matrix or (value.ndim > 1 and name.rpartition(".")[2] in maps), f"{residual}: {name}"
