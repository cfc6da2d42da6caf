"""The wiring across depth: contributions add up for every residual, and known wirings are found."""

from typing import Any

import pytest
import torch
from torch import Tensor

from addnorm import ModelSpec, depth_matrix, identities, preset
from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.testing.laws import some_tokens, subject

SITES = 6  # of three layers
RESIDUALS = [kind for kind in ROOMS["residual"].kinds() if kind != "replay"]


def toy(**changes: Any) -> ModelSpec:
    sizes = {"vocab": 11, "width": 16, "depth": 3, "heads": 2, "kv_heads": 2, "hidden": 24, "max_seq": 16}
    return preset("llama", **(sizes | {"init_std": 0.3} | changes))


WITH_NORMS = [(kind, norm) for kind in ("low_rank", "siamese") for norm in ("layer", "dyt")]


@pytest.mark.parametrize(("kind", "norm"), [*((kind, "rms") for kind in RESIDUALS), *WITH_NORMS])
def test_the_contributions_add_up_to_every_read_and_none_comes_from_later(kind: str, norm: str) -> None:
    model = subject(toy(residual=kind, norm=norm))  # no bias: norms shift nothing
    model.residual.advance(10**6)
    if kind == "affine":  # shifts of a residual come from no source
        assert identities(model, some_tokens(model.spec))[-1].shift.abs().max() > 1e-2
        with torch.no_grad():
            model.residual.stream_shift.zero_()
            model.residual.output_shift.zero_()
    parts = identities(model, some_tokens(model.spec))
    for part in parts:
        assert part.shift.abs().max() <= 1e-12 * part.read.abs().max(), part.name
    first = {part.name: row for row, part in enumerate(parts)}["0.feedforward"]
    assert parts[first].of_source[2:].abs().max() == 0
    sizes = parts[first].of_source[:2].abs().amax(dim=(1, 2, 3))
    assert (sizes > 0).tolist() == [kind != "none", True]


@pytest.mark.parametrize("placement", ["post", "keel", "deepnorm", "mix", "hybrid"])
@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_norms_on_the_stream_scale_the_contributions(placement: str, norm: str) -> None:
    model = subject(toy(placement={"kind": placement}, norm=norm))
    for part in identities(model, some_tokens(model.spec)):
        assert part.shift.abs().max() <= 1e-12 * part.read.abs().max(), part.name


def test_shifts_of_norms_belong_to_no_source() -> None:
    model = subject(toy(placement="post", norm="layer", bias=True))
    *earlier, shift = [value for name, value in model.named_parameters() if name.endswith("stream_norm.bias")]
    with torch.no_grad():
        for other in earlier:
            other.zero_()
    last = identities(model, some_tokens(model.spec))[-1]
    torch.testing.assert_close(last.shift, shift.detach().expand_as(last.shift), rtol=0, atol=1e-12)
    assert shift.abs().max() > 0.01


def lower(value: float = 1.0) -> Tensor:
    """Every read has the embeddings and all earlier outputs with one weight."""
    return value * torch.ones(SITES + 1, SITES + 1, dtype=torch.float64).tril()


@pytest.mark.parametrize(
    ("residual", "expected"),
    [
        ("add", lower()),
        ({"kind": "attention"}, lower() / torch.arange(1, SITES + 2)[:, None]),
        ({"kind": "attention", "total": "sum"}, lower()),
        ({"kind": "streams", "dynamic": False}, lower()),
        ("dense", lower()),
        ("dynamic_dense", None),
        ({"kind": "scale", "alpha": 0.5}, torch.cat([lower()[:, :1], lower(0.5)[:, 1:]], dim=1)),
    ],
    ids=str,
)
def test_known_wirings_at_the_start_are_found(residual: Any, expected: Tensor | None) -> None:
    matrix = depth_matrix(toy(residual=residual).build())
    if expected is None:  # rows of their own for queries, keys and values, except in the first layer
        assert [name for name in matrix.reads if name.startswith("1.")] == [
            *("1.attention.query", "1.attention.key", "1.attention.value"), "1.feedforward",
        ]  # fmt: skip
        expected = lower()[[0, 1, 2, 2, 2, 3, 4, 4, 4, 5, 6]]
    torch.testing.assert_close(matrix.weights, expected, rtol=0, atol=1e-6)
    assert matrix.spread.max() <= 1e-6


def test_learned_weights_are_those_of_the_parameters() -> None:
    model = toy(residual="rezero").build()
    with torch.no_grad():
        model.residual.alpha.copy_(torch.arange(1.0, SITES + 1))
    matrix = depth_matrix(model)
    assert matrix.sources == (
        "embedding",
        *(f"{layer}.{role}" for layer in range(3) for role in ("attention", "feedforward")),
    )
    torch.testing.assert_close(matrix.weights[-1], torch.tensor([1.0, 1, 2, 3, 4, 5, 6]).double())


def test_weights_that_depend_on_tokens_ask_for_tokens() -> None:
    model = subject(toy(residual="streams"))
    with pytest.raises(InputError, match="expected tokens, because the weights of residual 'streams' depend on them"):
        depth_matrix(model)
    assert depth_matrix(model, some_tokens(model.spec)).spread.max() > 1e-6


def test_layers_that_run_again_are_refused() -> None:
    with pytest.raises(InputError, match="got 'replay', which applies earlier layers again"):
        depth_matrix(toy(residual="replay").build())
