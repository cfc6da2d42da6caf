"""What `addnorm plan` says of a model before training: coefficients without a gradient, and norms with a large eps."""

from typing import Any

import pytest
import torch
from torch import Tensor

from addnorm import ModelSpec, preset
from addnorm.residual.streams import Streams
from addnorm.supervision.start_check import check_start


def toy(**changes: Any) -> ModelSpec:
    sizes = {"vocab": 11, "width": 16, "depth": 3, "heads": 2, "kv_heads": 1, "hidden": 24, "max_seq": 16}
    return preset("llama", **(sizes | {"init_std": 0.3} | changes))


@pytest.mark.parametrize(
    "changes",
    [{}, {"residual": "rezero"}, {"residual": "low_rank"}, {"residual": "schedule"}, {"values": "table"}],
    ids=str,
)
def test_a_gradient_of_zero_at_the_start_alone_is_no_warning(changes: Any) -> None:
    assert check_start(toy(**changes)).warnings() == []


def test_an_exponent_of_one_cannot_learn() -> None:
    (found,) = check_start(toy(scores="power")).unlearnable
    assert (found.parameter, found.entries, found.of, found.first, found.gradient) == ("scores.b", 1, 3, (0,), 0.0)


def test_mixing_logits_at_a_low_temperature_cannot_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Off-identity logits of -8 at temperature 0.05: weights of 3e-70, gradients of 4e-68."""
    spec = toy(residual=Streams(mixing="sinkhorn", streams=2, dynamic=False))
    (at_first,) = check_start(spec).unlearnable
    assert at_first.entries < 24, "mixing of equal streams, and of those whose mean is read next"
    build = Streams.build

    def cold(self: Streams, shape: Any, parts: Any) -> Any:
        built: Any = build(self, shape, parts)
        square = built._matrix

        def at_low_temperature(mixed: Tensor) -> Tensor:
            off = torch.ones(2, 2, dtype=mixed.dtype).fill_diagonal_(0).flatten()
            return square((mixed - 8 * off) / 0.05)

        built._matrix = at_low_temperature
        return built

    monkeypatch.setattr(Streams, "build", cold)
    (found,) = check_start(spec).unlearnable
    assert (found.parameter, found.entries) == ("residual.offset", 24), "all of the mixing"
    assert found.first[1] >= 4, "those of reading and writing learn"
    assert found.gradient < 1e-60
    (said,) = check_start(spec).warnings()
    assert "cannot learn" in said


def test_eps_against_the_mean_square_of_a_thin_stream() -> None:
    small = {"residual": "attention", "init_std": 0.02, "depth": 6}
    (worst,) = [said for said in check_start(toy(**small)).warnings() if "eps" in said]
    assert "times the mean square" in worst
    found = {each.norm: each for each in check_start(toy(**small)).large_eps}["final_norm"]
    assert found.mean_square < 1e-5
    assert check_start(toy(**small, norm={"kind": "rms", "eps": 1e-9})).large_eps == ()
    assert check_start(toy(init_std=0.02)).large_eps == ()
