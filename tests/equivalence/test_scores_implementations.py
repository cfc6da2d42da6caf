"""Every weight rule in every implementation, in whole models: against float64, within twice the plain computation's rounding.

The oracle is the model in float64 with `attention: reference`, which tests of its own hold to the formula; the plain
computation is the same in float32.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from comparing import gradients, make, tiny

from addnorm.catalogue import ROOMS
from addnorm.model.architecture import Dropout
from addnorm.model.spec import ModelSpec
from addnorm.testing.laws import subject
from pairwise import pairwise
from sampled import sampled

pytestmark = pytest.mark.plain  # rounding in long sequences; shapes of the same models are checked in tests/contracts
KINDS = ROOMS["scores"].kinds()
LONG = 133
"""Rows of two tiles, the second of which is not full."""
FACTORS: dict[str, tuple[Any, ...]] = {
    "kind": KINDS,
    "position": ("rope", "alibi", "t5"),
    "kv_heads": (2, 1, None),
    "objective": ("causal", "masked"),
    "padded": (False, True),
    "dropout": (0.0, 0.3),
    "length": (LONG, 1),
    "depth": (3, 1, 16),
}
"""Every pair of these meets; a sum over many layers is of a short sequence."""


def answers(spec: Any, state: dict[str, torch.Tensor], tokens: torch.Tensor, padding: torch.Tensor | None) -> Any:
    """Logits and all gradients, in float64, of a model with these parameters in their type."""
    model = spec.build().to(next(iter(state.values())).dtype).train()
    model.load_state_dict(state)
    torch.manual_seed(7)  # decides what drops
    logits = model(tokens) if padding is None else model(tokens, padding=padding)
    if padding is not None:
        logits = logits[padding]
    found = [gradient for _, gradient in sorted(gradients(model, logits).items()) if gradient is not None]
    return logits.detach().double(), torch.cat([gradient.flatten().double() for gradient in found])


@pytest.mark.parametrize(tuple(FACTORS), sampled(3, pairwise(*FACTORS.values())))
def test_rounding_is_within_twice_that_of_the_plain_computation(
    kind: str,
    position: str,
    kv_heads: int | None,
    objective: str,
    padded: bool,
    dropout: float,
    length: int,
    depth: int,
) -> None:
    length = min(length, 20) if depth > 3 else length
    changes = {"objective": objective, "dropout": Dropout(attention=dropout), "depth": depth, "kv_heads": kv_heads}
    spec = tiny(scores=make("scores", kind), position=make("position", position), max_seq=length, **changes)
    assert_rounding_is_within_twice_that_of_the_plain_computation(spec, padded)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_so_it_is_in_32_layers(kind: str) -> None:
    spec = tiny(scores=make("scores", kind), max_seq=20, depth=32)
    assert_rounding_is_within_twice_that_of_the_plain_computation(spec, padded=False)


def assert_rounding_is_within_twice_that_of_the_plain_computation(spec: ModelSpec, padded: bool) -> None:
    length = spec.max_seq
    tokens = torch.randint(spec.vocab, (2, length), generator=torch.Generator().manual_seed(3))
    padding = None
    if padded:
        padding = torch.arange(length) < torch.tensor([[length], [max(1, length - 60)]])
    exact = subject(replace(spec, attention="reference")).state_dict()
    narrow = {name: value.float() for name, value in exact.items()}
    exact = {name: value.double() for name, value in narrow.items()}  # the same numbers in both types
    truth = answers(replace(spec, attention="reference"), exact, tokens, padding)
    plain = answers(replace(spec, attention="reference"), narrow, tokens, padding)
    shared = spec.build_scores().shared_weight(0) is not None
    ways = ["streaming", "running" if shared else "auto"]  # "auto" is a running sum where that can be
    for way in ways:
        found = answers(replace(spec, attention=way), narrow, tokens, padding)
        for name, one, other, right in zip(("logits", "gradients"), found, plain, truth, strict=True):
            mine, allowed = (one - right).norm().item(), 2 * (other - right).norm().item()
            assert mine <= allowed, f"{way}, {name}: off by {mine:.1e}, twice the plain computation's is {allowed:.1e}"
            assert mine > 0, "nothing was rounded, so nothing was compared"
