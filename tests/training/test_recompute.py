"""Activation checkpointing: the same gradients for less memory, with every kind of state that travels between layers."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from addnorm.model.presets import preset
from addnorm.study.definition import Training
from addnorm.supervision.step_cost import step_cost

SIZES: dict[str, Any] = {"vocab": 32, "width": 16, "depth": 3, "heads": 2, "kv_heads": 1, "hidden": 16, "max_seq": 16}


def gradients(*, recompute: bool, **changes: Any) -> dict[str, torch.Tensor]:
    model = preset("llama", **SIZES, **changes).build(seed=0).train()
    model.recompute = recompute
    tokens = torch.randint(32, (2, 8), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"dropout": 0.1},
        {"scores": "weighted"},
        {"scores": "sum", "attention": "streaming"},
        {"residual": "streams"},
        {"residual": "replay"},
        {"values": "first"},
        {"column": "earlier"},
        {"scores": "accumulated_projections"},
    ],
    ids=str,
)
def test_gradients_are_the_same_bits(changes: dict[str, Any]) -> None:
    plain, again = (gradients(recompute=recompute, **changes) for recompute in (False, True))
    assert plain.keys() == again.keys()
    assert all(torch.equal(plain[name], again[name]) for name in plain)


def test_a_running_sum_is_the_same_to_rounding() -> None:
    # Its buffer is undone layer by layer in the backward pass, and once more by each layer that is computed again.
    plain, again = (gradients(recompute=recompute, scores="sum", attention="running") for recompute in (False, True))
    for name, gradient in plain.items():
        torch.testing.assert_close(again[name], gradient, rtol=2**-16, atol=2**-20 * gradient.abs().max().item())


@pytest.mark.parametrize("scores", ["own", "weighted"])
def test_a_step_needs_less_memory_and_more_time(scores: str) -> None:
    # Of few layers, the one that is computed again holds much of what all of them hold.
    sizes = {**SIZES, "depth": 6, "max_seq": 128, "width": 64, "hidden": 128}
    model = preset("llama", **sizes, scores=scores, attention="streaming")  # which keeps nothing that is not recomputed
    training = Training(batch=4, seq=128)
    plain, again = (step_cost(model, replace(training, recompute=recompute)) for recompute in (False, True))
    assert again.peak_bytes < 0.7 * plain.peak_bytes
    assert 1.1 < again.flops / plain.flops < 4 / 3  # a second forward pass, but for the head
