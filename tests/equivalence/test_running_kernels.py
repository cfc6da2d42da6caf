"""The GPU kernels of the running sum give the formula's numbers: in Triton's interpreter here, on a GPU where there is one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from compiled_kernels import assert_compiles
from torch import Tensor

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention import (
    DistanceBias,
    ReversibleSum,
    ScoreBuffers,
    SeparateLayers,
    packed,
    problem_of,
    why_not_running,
)
from addnorm.kernels.grouped_attention.kept_scores import layers
from addnorm.kernels.grouped_attention.kept_scores import running as passes

pytest.importorskip("triton")

from addnorm.kernels.grouped_attention import launches
from sampled import sampled

# Triton's interpreter cannot see through the shape checker.
pytestmark = pytest.mark.compiled
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {"rtol": 2e-4, "atol": 2e-4}
"""Float32 sums of some hundred products of numbers of order one, after three layers: two digits above their rounding; a wrong
term is of order 0.1."""


@pytest.fixture(autouse=True)
def kernels_with_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels also for tensors on a CPU; blocks of 16, so that short problems have several and a remainder."""
    for module in (layers, packed, passes):
        monkeypatch.setattr(module, "on_device", lambda _: True)
    monkeypatch.setattr(launches, "usual_launch", lambda *_, **__: launches.Launch(16, 16, 8, 1))


@dataclass(frozen=True)
class Case:
    """Sizes and settings of a few layers."""

    weights: tuple[float, ...] = (0.5, 0.5, 0.5)
    learned: bool = False
    heads: int = 2
    kv_heads: int = 1
    query: int = 21
    key: int = 21
    head_dim: int = 5
    value_dim: int = 3
    causal: bool = True
    window: int | None = None
    padded: bool = False
    bias: str = "none"
    dropout: float = 0.0
    dtype: torch.dtype = torch.float32


CASES = {
    "everything": Case(
        weights=(0.5, -0.4, 0.2), learned=True, bias="distance", dropout=0.3, padded=True, window=17, value_dim=17
    ),
    "sum": Case(),
    "heads of several parts": Case(head_dim=40, value_dim=5, weights=(0.1, 0.1, 0.1)),
    "mean": Case(weights=(0.6, 0.3, 0.2)),
    "window": Case(window=5),
    "weights that do not scale": Case(weights=(0.5, -0.7, 0.0), learned=True),
    "a weight far from the first": Case(weights=(0.5, 1e-6, 0.4), learned=True),
    "every head its own keys": Case(kv_heads=2),
    "window over a block, padding": Case(window=18, padded=True),
    "both directions, padding": Case(causal=False, padded=True),
    "dropout": Case(dropout=0.4, kv_heads=2),
    "whole blocks": Case(query=32, key=32),
    "one position": Case(query=1, key=1),
    "matrix bias, fewer queries": Case(bias="matrix", learned=True, query=19, key=37),
    "bias by distance": Case(bias="distance", learned=True, query=18, key=21),
}
"""The first of every four is in `make test`: the interpreter takes about a second for each."""


class Layers:
    """Leaves of a case in float64, and the gradients that an implementation gives for them."""

    def __init__(self, case: Case) -> None:
        generator = torch.Generator().manual_seed(3)
        self.case = case

        def draw(*shape: int) -> Tensor:
            # Representable in the narrow type, so that both sides start from the same numbers.
            return torch.randn(*shape, generator=generator).to(case.dtype).double()

        count, batch = len(case.weights), 2
        self.queries = [draw(batch, case.heads, case.query, case.head_dim) for _ in range(count)]
        self.keys = [draw(batch, case.kv_heads, case.key, case.head_dim) for _ in range(count)]
        self.values = [draw(batch, case.kv_heads, case.key, case.value_dim) for _ in range(count)]
        self.wanted = [draw(batch, case.heads, case.query, case.value_dim) for _ in range(count)]
        span = case.key + case.query - 1
        shape = (1, case.heads, case.query, case.key) if case.bias == "matrix" else (case.heads, span)
        self.bias = draw(*shape)
        self.padding = torch.ones(batch, case.key, dtype=torch.bool)
        self.padding[0, case.key // 2 :] = self.padding[1, :2] = False

    def outputs(self, attention: Any, dtype: torch.dtype, device: str) -> tuple[list[Tensor], list[Tensor]]:
        """The leaves and what each layer attends to."""
        case = self.case

        def leaf(number: Tensor) -> Tensor:
            return number.to(device, dtype).requires_grad_()

        queries, keys, values = ([leaf(each) for each in some] for some in (self.queries, self.keys, self.values))
        weights = [torch.tensor(w, dtype=torch.float64, device=device, requires_grad=True) for w in case.weights]
        leaves = [*queries, *keys, *values, *(weights if case.learned else [])]
        bias: Tensor | DistanceBias | None = None
        if case.bias != "none":
            leaves.append(leaf(self.bias))
            first = case.key - case.query - (case.key - 1)
            bias = leaves[-1] if case.bias == "matrix" else DistanceBias(values=leaves[-1], first=first)
        outputs = []
        for layer, value in enumerate(values):
            terms = layer + 1
            given = weights[layer].to(torch.promote_types(dtype, torch.float32)).expand(terms)
            problem = problem_of(
                queries[:terms],
                keys[:terms],
                value,
                given if case.learned else [case.weights[layer]] * terms,
                causal=case.causal,
                sliding_window=case.window,
                bias=bias,
                padding=self.padding.to(device) if case.padded else None,
                dropout=case.dropout,
                seed=torch.tensor(11, device=device) if case.dropout else None,
            )
            outputs.append(attention.attend(problem, next_terms=terms + 1))
        return leaves, outputs

    def loss(self, outputs: list[Tensor], chosen: tuple[int, ...]) -> Tensor:
        """A loss that reads some layers."""
        return sum((outputs[i].double() * self.wanted[i].to(outputs[i].device)).sum() for i in chosen)  # type: ignore[return-value]

    def truth(self, chosen: tuple[int, ...]) -> tuple[list[Tensor], list[Tensor]]:
        """Attended values and gradients of the formula in float64."""
        leaves, outputs = self.outputs(SeparateLayers("reference", keep=False), torch.float64, "cpu")
        return outputs, list(torch.autograd.grad(self.loss(outputs, chosen), leaves, allow_unused=True))

    def assert_right(self, found: Any, expected: list[Tensor], **tolerance: float) -> None:
        for one, other in zip(found, expected, strict=True):
            right = torch.zeros_like(one, dtype=torch.float64) if other is None else other
            torch.testing.assert_close(one.double().cpu(), right.cpu(), **(tolerance or TOLERANCE))


@pytest.mark.parametrize("name", sampled(8, CASES))
def test_values_and_gradients_are_those_of_the_formula(name: str) -> None:
    sides = Layers(CASES[name])
    everything = tuple(range(len(CASES[name].weights)))
    expected, gradients = sides.truth(everything)
    leaves, outputs = sides.outputs(ReversibleSum(ScoreBuffers()), torch.float32, DEVICE)
    sides.assert_right(outputs, expected)
    sides.assert_right(torch.autograd.grad(sides.loss(outputs, everything), leaves), gradients)


def test_narrow_numbers_are_summed_in_float32() -> None:
    sides = Layers(replace(CASES["sum"], dtype=torch.bfloat16))
    expected, gradients = sides.truth((0, 1, 2))
    kept = ScoreBuffers()
    leaves, outputs = sides.outputs(ReversibleSum(kept), torch.bfloat16, DEVICE)
    narrow = {"rtol": 2**-6, "atol": 2**-5}  # rounded to eight bits: probabilities, gradients, and what is returned
    sides.assert_right(outputs, expected, **narrow)
    sides.assert_right(torch.autograd.grad(sides.loss(outputs, (0, 1, 2)), leaves), gradients, **narrow)
    assert kept.nbytes == 2 * 4 * 2 * 2 * (16 * 16 + 16 * 21)  # two buffers of float32; the blocks see 16 and 21 keys


@pytest.mark.parametrize("chosen", [(0, 2), *(pytest.param(one, marks=pytest.mark.thorough) for one in ((2,), (0,)))])
def test_losses_that_read_some_layers(chosen: tuple[int, ...]) -> None:
    sides = Layers(CASES["sum"])
    _, gradients = sides.truth(chosen)
    leaves, outputs = sides.outputs(ReversibleSum(ScoreBuffers()), torch.float32, DEVICE)
    found = torch.autograd.grad(sides.loss(outputs, chosen), leaves, allow_unused=True)
    found = [torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(leaves, found, strict=True)]
    sides.assert_right(found, gradients)


@pytest.mark.thorough
def test_a_sum_that_another_pass_has_overwritten_is_made_again() -> None:
    one, other = Layers(replace(CASES["mean"], padded=True)), Layers(replace(CASES["mean"], query=17, key=17))
    kept = ScoreBuffers()
    first, second = (sides.outputs(ReversibleSum(kept), torch.float32, DEVICE) for sides in (one, other))
    for sides, (leaves, outputs) in ((one, first), (other, second)):
        loss, (_, gradients) = sides.loss(outputs, (0, 1, 2)), sides.truth((0, 1, 2))
        for _ in range(2):  # the second backward pass finds the sum undone
            sides.assert_right(torch.autograd.grad(loss, leaves, retain_graph=True), gradients)


def test_going_back_leaves_the_sum_of_the_layer_below() -> None:
    sides, kept = Layers(CASES["sum"]), ScoreBuffers()
    sums: list[Tensor] = []
    attention = ReversibleSum(kept)
    attend = attention.attend

    def watched(problem: Any, **options: Any) -> Tensor:
        out = attend(problem, **options)
        assert kept._total is not None
        sums.append(kept._total.clone())
        return out

    attention.attend = watched  # type: ignore[method-assign]
    leaves, outputs = sides.outputs(attention, torch.float32, DEVICE)
    assert all(not torch.allclose(one.nan_to_num(), two.nan_to_num()) for one, two in pairwise(sums))
    torch.autograd.grad(sides.loss(outputs, (0, 1, 2)), leaves)
    seen = torch.isfinite(sums[0])
    assert kept._total is not None
    torch.testing.assert_close(kept._total[seen], sums[0][seen], rtol=1e-5, atol=1e-5)


def problem_with(**settings: Any) -> Any:
    queries = torch.zeros(1, 1, 4, 8, dtype=settings.pop("dtype", torch.float32))
    return problem_of([queries], [queries], queries, [1.0], causal=True, **settings)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (lambda: problem_with(dtype=torch.float64), "the kernels of a GPU takes float32, bfloat16 or float16"),
        (lambda: problem_with(cap=2.0), "expected scores without a cap"),
    ],
)
def test_what_they_cannot_do_is_said(problem: Callable[[], Any], message: str) -> None:
    assert message in str(why_not_running(problem()))


def test_a_layer_that_cannot_be_reached_again_raises() -> None:
    sides = Layers(CASES["sum"])
    leaves, outputs = sides.outputs(ReversibleSum(ScoreBuffers()), torch.float32, DEVICE)
    (first,) = torch.autograd.grad(sides.loss(outputs, (2,)), leaves[:1], create_graph=True)
    with pytest.raises(InputError, match="expected a first derivative"):
        first.sum().backward()


@pytest.mark.thorough  # eight compilations
def test_the_kernels_compile_for_gpus_that_are_not_here() -> None:
    assert_compiles("sum_terms", "attend_sum", "differentiate_sum_rows", "differentiate_sum_keys")
