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
from addnorm.testing.laws import subject

pytestmark = pytest.mark.plain  # rounding in long sequences; shapes of the same models are checked in tests/contracts
KINDS = ROOMS["scores"].kinds()
LONG = 133
"""Rows of two tiles, the second of which is not full."""
SETTINGS: dict[str, dict[str, Any]] = {
    "rope": {"position": make("position", "rope")},
    "alibi": {"position": make("position", "alibi")},
    "t5": {"position": make("position", "t5")},
    "grouped queries": {"kv_heads": 1},
    "one key head each": {"kv_heads": None},
    "both directions": {"objective": "masked"},
    "padding": {},
    "dropout": {"dropout": Dropout(attention=0.3)},
    "length 1": {},
    "one layer": {"depth": 1},
    "32 layers": {"depth": 32},
}


def answers(spec: Any, state: dict[str, torch.Tensor], tokens: torch.Tensor, padding: torch.Tensor | None) -> Any:
    """Logits and all gradients, in float64, of a model with these parameters in their type."""
    model = subject(spec).to(next(iter(state.values())).dtype).train()
    model.load_state_dict(state)
    torch.manual_seed(7)  # decides what drops
    logits = model(tokens) if padding is None else model(tokens, padding=padding)
    if padding is not None:
        logits = logits[padding]
    found = [gradient for _, gradient in sorted(gradients(model, logits).items()) if gradient is not None]
    return logits.detach().double(), torch.cat([gradient.flatten().double() for gradient in found])


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_rounding_is_within_twice_that_of_the_plain_computation(kind: str, setting: str) -> None:
    length = 1 if setting == "length 1" else LONG if setting != "32 layers" else 20
    spec = tiny(scores=make("scores", kind), max_seq=length, **SETTINGS[setting])
    tokens = torch.randint(spec.vocab, (2, length), generator=torch.Generator().manual_seed(3))
    padding = None
    if setting == "padding":
        padding = torch.arange(length) < torch.tensor([[length], [length - 60]])
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
