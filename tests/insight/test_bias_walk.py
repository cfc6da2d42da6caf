"""A bias without effect walks as far as its gradient's rounding errors carry it, and no further."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from addnorm import preset
from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.optimization.optimizers.adamw import AdamW

STEPS, RATE = 40, 1e-3
BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "bias_walk.py"))
Walk, walk_on_noise, walks = (BENCHMARK[name] for name in ("Walk", "walk_on_noise", "walks"))


def tiny(**overrides: object) -> ModelSpec:
    sizes = {"vocab": 16, "width": 16, "depth": 2, "heads": 2, "hidden": 32, "max_seq": 16, "init_std": 0.25}
    return preset("gpt2", dropout=0, **{**sizes, **overrides})


def walked(precision: str, eps: float = 1e-8, **overrides: object) -> dict[str, Any]:
    optimizer = AdamW(learning_rate=RATE, weight_decay=0.0, betas=(0.9, 0.95), eps=eps)
    found = walk_on_noise(tiny(**overrides), optimizer=optimizer, precision=precision, steps=STEPS, batch=2, seq=16)
    return {walk.bias: walk for walk in found}


def test_a_redundant_bias_stands_still_where_rounding_is_below_eps() -> None:
    """A gradient g below eps moves AdamW by at most rate * |g| / eps; with float64, |g| is some 1e-16 of a gradient below 1."""
    found = walked("float64")
    assert found["k"].largest < STEPS * RATE * 1e-15 / 1e-8
    assert found["q"].rms > RATE


@pytest.mark.parametrize(("precision", "eps"), [("float32", 1e-15), ("bfloat16 autocast", 1e-8), ("bfloat16", 1e-8)])
def test_it_walks_like_a_useful_one_where_rounding_is_above_eps(precision: str, eps: float) -> None:
    found = walked(precision, eps)
    assert found["k"].rms > RATE  # further than any one step
    assert found["k"].largest <= STEPS * RATE * 10  # and no further than AdamW can go


def test_with_rotary_position_the_key_bias_is_felt_in_any_precision() -> None:
    assert walked("float64", position="rope")["k"].rms > RATE


def test_all_kinds_are_told_apart_and_counted() -> None:
    model = tiny(bias=True, activation="swiglu").build()
    found = {walk.bias: walk.num_entries for walk in walks(model.state_dict())}
    # Two layers of width 16: an attention branch and a gated feed-forward of 32; five norms; a head of 16.
    assert found == {"q": 32, "k": 32, "v": 32, "o": 32, "up": 2 * 2 * 32, "down": 32, "norm": 5 * 16, "head": 16}


def test_a_walk_is_measured_from_zero_over_all_layers() -> None:
    parameters = {
        "layers.0.attention.body.qk_bias.k": torch.tensor([3.0, 0.0]),
        "layers.1.attention.body.qk_bias.k": torch.tensor([0.0, -4.0]),
        "layers.0.attention.body.key.weight": torch.ones(2, 2),
        "residual.bias": torch.ones(2),
    }
    assert walks(parameters) == (Walk(bias="k", num_entries=4, rms=2.5, largest=4.0),)


def test_without_biases_there_is_nothing_to_measure() -> None:
    with pytest.raises(InputError, match=r"expected a model with a bias, got one without\. Switch one on"):
        walks({"embedding.weight": torch.ones(2, 2)})
