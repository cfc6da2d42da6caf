"""What is counted at once, without walking through the tiles, is what the tiles compute."""

from dataclasses import replace

import pytest
import torch
from grouped_attention_cases import Case, cases, leaves
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import addnorm
from addnorm.kernels.grouped_attention import DistanceBias, counting_at_once
from addnorm.kernels.grouped_attention.arguments import problem_of
from addnorm.kernels.grouped_attention.streaming import streaming
from addnorm.model.transformer import Transformer

LONG = Case(query=300, key=300, padded=False, biased=False)  # three tiles of rows
CASES = [
    *cases(causal=(True, False), kv_heads=(2, 4), terms=(1, 3)),
    Case(sliding_window=70),
    Case(sliding_window=70, query=150),
    Case(query=5),
    Case(by_distance=True),
    Case(padded=True),
]


class Operations(TorchDispatchMode):
    """How many operations ran."""

    number = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.number += 1
        return function(*args, **(kwargs or {}))


def on(device: str, given):
    if isinstance(given, list):
        return [on(device, entry) for entry in given]
    if isinstance(given, DistanceBias):
        return replace(given, values=on(device, given.values))
    return given.detach().to(device).requires_grad_(given.requires_grad) if isinstance(given, Tensor) else given


def passes(case: Case, device: str) -> tuple[int, list[torch.Size]]:
    """FLOPs of both passes, and the shapes of their results."""
    arguments = {name: on(device, value) for name, value in case.arguments().items()}
    with FlopCounterMode(display=False) as counter, counting_at_once():
        attended = streaming(problem_of(**arguments))
        gradients = torch.autograd.grad(attended, leaves(arguments), torch.ones_like(attended))
    return counter.get_total_flops(), [attended.shape, *(gradient.shape for gradient in gradients)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_at_once_counts_what_the_tiles_compute(case: Case) -> None:
    case = replace(LONG, **{field: value for field, value in vars(case).items() if value != getattr(Case(), field)})
    assert passes(case, "meta") == passes(case, "cpu")


@pytest.mark.plain  # whole models of what is counted with the checker above
@pytest.mark.parametrize(
    ("preset", "attention"),
    [("v4m1", "running"), ("v4m1", "stored"), ("v4m5", "stored"), ("v4m6", "stored"), ("v4m5", "streaming")],
)
def test_a_model_counts_at_once_what_its_layers_compute(preset: str, attention: str) -> None:
    """Three tiles of rows; v4m1 has no weights of scores to differentiate, v4m5 one per pair of layers."""
    spec = addnorm.preset(
        preset, vocab=32, width=32, heads=4, kv_heads=2, hidden=64, depth=4, max_seq=300, attention=attention
    )
    found = []
    for device in ("meta", "cpu"):
        with torch.device(device):
            model, tokens = Transformer(spec), torch.zeros(2, 300, dtype=torch.long)
        with FlopCounterMode(display=False) as counter, counting_at_once():
            model(tokens).sum().backward()
        found.append(counter.get_total_flops())
    assert found[0] == found[1]


def test_counting_does_not_walk_through_the_tiles() -> None:
    numbers = []
    for length in (300, 1200):
        arguments = {
            name: on("meta", value) for name, value in replace(LONG, query=length, key=length).arguments().items()
        }
        with Operations() as seen, counting_at_once():
            streaming(problem_of(**arguments)).sum().backward()
        numbers.append(seen.number)
    assert numbers[0] == numbers[1]
