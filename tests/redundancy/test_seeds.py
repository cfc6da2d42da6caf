"""Both methods count the same for all weights: a rank that depends on rounding would differ for some draw."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from models_by_seed import MODELS

import addnorm
from sampled import sampled

pytestmark = pytest.mark.compiled

DRAWN_TWICE = [
    "resnet, running statistics",
    "resnet, batch statistics",
    "bert",
    "gpt2",
    "preset v3m1",
    "preset v4m6",
]
"""Models whose structure differs: convolutions, post-norm, pre-norm, RMS norms with rotary positions and summed scores, and
replayed layers. The soak draws all of them, and models/ audits each at one draw."""

Build = Callable[[int], tuple[torch.nn.Module, Any, dict[str, Any]]]


def counts(build: Build, seed: int) -> tuple[object, ...]:
    """All counts of both methods, after they have agreed."""
    model, inputs, options = build(seed)
    audit = addnorm.audit(model, inputs, **options)
    assert audit.disagreements == (), f"seed {seed}"
    assert audit.joint_null == audit.numeric_joint_null
    return (audit.joint_null, *((each.redundant_dof, each.absorbable_dof) for each in audit.findings))


@pytest.mark.parametrize("name", sampled(6, DRAWN_TWICE))
def test_counts_do_not_depend_on_the_draw(name: str) -> None:
    assert len({counts(MODELS[name], seed) for seed in range(2)}) == 1


@pytest.mark.soak
@pytest.mark.parametrize("name", MODELS)
def test_counts_do_not_depend_on_fifty_draws(name: str) -> None:
    assert len({counts(MODELS[name], seed) for seed in range(50)}) == 1
