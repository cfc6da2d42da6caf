"""Scores kept across layers, in uses that change the order of passes: the reference's gradients, or one clear error."""

import copy
import functools
import itertools
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from comparing import gradients, loss_of, make, tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention import (
    ProductBuffers,
    ReversibleSum,
    ScoreBuffers,
    SeparateLayers,
    StoredProducts,
    problem_of,
)
from addnorm.kernels.grouped_attention.kept_scores import layer as one_layer
from addnorm.kernels.grouped_attention.layerwise import LayerwiseAttention
from addnorm.model.transformer import Transformer
from addnorm.testing.laws import some_tokens, subject

pytestmark = pytest.mark.plain  # orders of passes, of the shapes that test_running_scores.py checks

TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}
"""Float64 with sums of order one: four digits above its rounding, ten below the smallest wrong term."""


@dataclass(frozen=True)
class Way:
    """An implementation that keeps one layer's scores for the next."""

    name: str
    scores: str
    """A kind that it serves."""
    buffers: Callable[[], Any]
    layerwise: Callable[[Any], LayerwiseAttention]
    """Makes it, for four layers, with these buffers."""

    def new(self) -> LayerwiseAttention:
        return self.layerwise(self.buffers())

    def bytes_of(self, model: Transformer) -> int:
        return (model.score_buffers if self.name == "running" else model.product_buffers).nbytes


RUNNING = Way("running", "power", ScoreBuffers, ReversibleSum)
STORED = Way("stored", "weighted", ProductBuffers, lambda buffers: StoredProducts(buffers, depth=4))
every_way = pytest.mark.parametrize("way", [RUNNING, STORED], ids=["running", "stored"])


def pair(way: Way, **changes: Any) -> tuple[Transformer, Transformer]:
    """A model that keeps scores across layers, with learned weights that differ, and the same with the reference."""
    changes = {"scores": make("scores", way.scores), "depth": 3, **changes}
    model, reference = (subject(tiny(attention=attention, **changes)) for attention in (way.name, "reference"))
    reference.load_state_dict(model.state_dict())
    return model, reference


def tokens_of(model: Transformer, seed: int, length: int = 6) -> Tensor:
    return torch.randint(model.spec.vocab, (2, length), generator=torch.Generator().manual_seed(seed))


def assert_gradients(found: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert found.keys() == right.keys()
    for name, expected in right.items():
        if expected is None:
            assert found[name] is None or not found[name].any(), name
        else:
            torch.testing.assert_close(
                found[name], expected, **TOLERANCE, msg=lambda text, name=name: f"{name}: {text}"
            )


@every_way
def test_two_forward_passes_before_their_backward_passes(way: Way) -> None:
    model, reference = pair(way)
    one, other = tokens_of(model, 0), tokens_of(model, 1, length=9)
    first, second = model(one), model(other)
    assert_gradients(gradients(model, first), gradients(reference, reference(one)))
    assert_gradients(gradients(model, second), gradients(reference, reference(other)))


@every_way
def test_one_backward_pass_through_two_forward_passes(way: Way) -> None:
    model, reference = pair(way)
    found = []
    for side in (model, reference):
        loss = loss_of(side(tokens_of(model, 0))) + loss_of(side(tokens_of(model, 1)))
        found.append(torch.autograd.grad(loss, list(side.parameters()), allow_unused=True))
    names = [name for name, _ in model.named_parameters()]
    assert_gradients(*(dict(zip(names, grads, strict=True)) for grads in found))


@every_way
def test_a_second_backward_pass(way: Way) -> None:
    model, reference = pair(way)
    tokens = tokens_of(model, 0)
    loss = loss_of(model(tokens))
    right = gradients(reference, reference(tokens))
    names, parameters = zip(*model.named_parameters(), strict=True)
    for retain in (True, True, False):
        grads = torch.autograd.grad(loss, parameters, retain_graph=retain, allow_unused=True)
        assert_gradients(dict(zip(names, grads, strict=True)), right)


@every_way
def test_an_evaluation_between_forward_and_backward(way: Way) -> None:
    model, reference = pair(way)
    tokens = tokens_of(model, 0)
    logits = model(tokens)
    with torch.no_grad():
        model(tokens_of(model, 1, length=11))
    assert_gradients(gradients(model, logits), gradients(reference, reference(tokens)))


def layers(attention: LayerwiseAttention, leaves: list[Tensor], start: int = 0) -> list[Tensor]:
    """The outputs of layers of one head, whose queries, keys and values are the leaves in turn."""
    queries, keys, values = leaves[0::3], leaves[1::3], leaves[2::3]
    outputs = []
    for layer, value in enumerate(values):
        problem = problem_of(queries[: layer + 1], keys[: layer + 1], value, [0.5] * (layer + 1), causal=True)
        outputs.append(attention.attend(problem, next_terms=layer + 2))
    return outputs


def some_leaves(depth: int = 4, trained: Callable[[int], bool] = lambda layer: True) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    leaves = []
    for layer in range(depth):
        for _ in "qkv":
            leaf = torch.randn(2, 1, 7, 3, dtype=torch.float64, generator=generator)
            leaves.append(leaf.requires_grad_(trained(layer)))
    return leaves


@every_way
@pytest.mark.parametrize("used", [(0,), (1,), (0, 2), (3,), (1, 3)])
def test_losses_that_read_some_layers_only(way: Way, used: tuple[int, ...]) -> None:
    leaves, found = some_leaves(), []
    for attention in (way.new(), SeparateLayers("reference", keep=False)):
        outputs = layers(attention, leaves)
        loss = sum(outputs[layer].square().sum() for layer in used)
        found.append(torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, **TOLERANCE)


@every_way
@pytest.mark.parametrize("frozen", [{0}, {1}, {0, 1}, {3}, {0, 2}])
def test_layers_that_are_not_trained(way: Way, frozen: set[int]) -> None:
    leaves, found = some_leaves(trained=lambda layer: layer not in frozen), []
    trained = [leaf for leaf in leaves if leaf.requires_grad]
    for attention in (way.new(), SeparateLayers("reference", keep=False)):
        loss = sum(output.square().sum() for output in layers(attention, leaves))
        found.append(torch.autograd.grad(loss, trained))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, **TOLERANCE)


@every_way
def test_passes_that_end_early_do_not_keep_more_and_more(way: Way) -> None:
    buffers, leaves = way.buffers(), some_leaves()
    right = None
    sizes = []
    for _ in range(5):
        loss = sum(output.square().sum() for output in layers(way.layerwise(buffers), leaves))
        torch.autograd.grad(loss, leaves[-3:], retain_graph=True)  # never reaches the layers below
        found = torch.autograd.grad(loss, leaves)
        for one, other in zip(found, right or found, strict=True):
            torch.testing.assert_close(one, other, **TOLERANCE)
        right = found
        sizes.append(buffers.nbytes)
    assert sizes[-1] == sizes[1]


class Raising(torch.autograd.Function):
    """The identity, whose derivative raises while `armed`."""

    armed = True

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        if Raising.armed:
            raise RuntimeError("planted")
        return grad


@every_way
def test_an_exception_in_between_leaves_no_wrong_gradient(way: Way) -> None:
    buffers, leaves = way.buffers(), some_leaves()
    right = torch.autograd.grad(
        sum(o.square().sum() for o in layers(SeparateLayers("reference", keep=False), leaves)), leaves
    )
    guarded = list(leaves)
    guarded[4] = Raising.apply(leaves[4])  # the second layer's keys
    loss = sum(output.square().sum() for output in layers(way.layerwise(buffers), guarded))
    Raising.armed = True
    with pytest.raises(RuntimeError, match="planted"):
        torch.autograd.grad(loss, leaves, retain_graph=True)
    Raising.armed = False
    for one, other in zip(torch.autograd.grad(loss, leaves), right, strict=True):
        torch.testing.assert_close(one, other, **TOLERANCE)


@every_way
def test_a_layer_that_fails_in_the_middle_leaves_no_wrong_sum(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    buffers, leaves = way.buffers(), some_leaves()
    right = torch.autograd.grad(
        sum(o.square().sum() for o in layers(SeparateLayers("reference", keep=False), leaves)), leaves
    )
    loss = sum(output.square().sum() for output in layers(way.layerwise(buffers), leaves))
    original, calls = one_layer.hand_out, []

    def failing(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError("planted")
        original(*arguments)

    monkeypatch.setattr(one_layer, "hand_out", failing)
    with pytest.raises(MemoryError, match="planted"):
        torch.autograd.grad(loss, leaves, retain_graph=True)
    for one, other in zip(torch.autograd.grad(loss, leaves), right, strict=True):
        torch.testing.assert_close(one, other, **TOLERANCE)


@every_way
def test_second_derivatives_are_refused(way: Way) -> None:
    model, _ = pair(way)
    loss = loss_of(model(tokens_of(model, 0)))
    first = torch.autograd.grad(loss, list(model.parameters()), create_graph=True, allow_unused=True)
    size = sum(grad.square().sum() for grad in first if grad is not None)
    with pytest.raises(InputError, match=f"{way.name}: expected a first derivative, got a second one"):
        size.backward()


class Checkpointed(nn.Module):
    """A branch that is computed again in the backward pass."""

    def __init__(self, branch: nn.Module, *, reentrant: bool) -> None:
        super().__init__()
        self.branch, self.reentrant = branch, reentrant

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.branch, name)

    def forward(self, x: Tensor, *side: Any) -> Tensor:
        return checkpoint(self.branch, x, *side, use_reentrant=self.reentrant)


def checkpointed(model: Transformer, *, reentrant: bool) -> Transformer:
    """The model, its layers' branches wrapped; the parameters keep their order."""
    for layer in model.layers:
        for name, branch in list(layer.named_children()):
            setattr(layer, name, Checkpointed(branch, reentrant=reentrant))
    return model


@pytest.mark.parametrize(
    ("attention", "scores"),
    [
        ("running", "power"),
        ("stored", "power"),
        ("stored", "weighted"),
        *itertools.product(["streaming", "reference"], ["power", "weighted", "accumulated_projections", "own"]),
    ],
)
def test_activation_checkpointing(attention: str, scores: str) -> None:
    spec = tiny(attention=attention, scores=make("scores", scores), depth=3)
    model, plain = subject(spec), subject(spec)
    tokens = some_tokens(spec)
    right = gradients(plain, plain(tokens))
    wrapped = checkpointed(model, reentrant=False)
    found = gradients(wrapped, wrapped(tokens))
    assert_gradients(dict(zip(right, found.values(), strict=True)), right)


@pytest.mark.parametrize("attention", ["running", "stored", "streaming"])
def test_reentrant_checkpointing_is_refused(attention: str) -> None:
    model = checkpointed(subject(tiny(attention=attention, scores=make("scores", "sum"), depth=3)), reentrant=True)
    x = tokens_of(model, 0)
    model.embedding.weight.requires_grad_(True)
    with pytest.raises(InputError, match="use_reentrant=False"):
        loss_of(model(x)).backward()


@every_way
def test_transformations_of_torch_func(way: Way) -> None:
    model, reference = pair(way)
    tokens = tokens_of(model, 0)

    def loss(parameters: dict[str, Tensor], side: Transformer) -> Tensor:
        return loss_of(torch.func.functional_call(side, parameters, (tokens,)))

    with pytest.raises(InputError, match=rf"{way.name}: expected no transformation of torch\.func"):
        torch.func.grad(loss)(dict(model.named_parameters()), model)
    automatic = subject(tiny(attention="auto", scores=make("scores", way.scores), depth=3))
    automatic.load_state_dict(model.state_dict())
    found = torch.func.grad(loss)(dict(automatic.named_parameters()), automatic)
    right = gradients(reference, reference(tokens))
    for name, expected in right.items():
        if expected is not None:
            torch.testing.assert_close(found[name], expected, **TOLERANCE)


@every_way
def test_copies_begin_with_empty_buffers(way: Way) -> None:
    model, _ = pair(way)
    loss_of(model(tokens_of(model, 0))).backward()
    assert way.bytes_of(model) > 0
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert way.bytes_of(other) == 0
        assert torch.equal(other(tokens_of(model, 1)), model(tokens_of(model, 1)))


@every_way
def test_evaluation_keeps_one_buffer_and_a_running_sum_in_training_two(way: Way) -> None:
    model, _ = pair(way)
    model.score_buffers, model.product_buffers = ScoreBuffers(), ProductBuffers()
    with torch.no_grad():
        model(tokens_of(model, 0))
    one = way.bytes_of(model)
    for seed in range(3):
        loss_of(model(tokens_of(model, seed))).backward()
        assert way.bytes_of(model) == (2 if way is RUNNING else 1) * one > 0


@every_way
def test_threads_take_turns(way: Way) -> None:
    model, reference = pair(way)
    right = {seed: gradients(reference, reference(tokens_of(model, seed))) for seed in range(4)}
    found: dict[int, dict[str, Tensor]] = {}

    def work(seed: int) -> None:
        for _ in range(5):
            found[seed] = gradients(model, model(tokens_of(model, seed)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in right]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, expected in right.items():
        assert_gradients(found[seed], expected)


@functools.cache
def models_to_use(way: Way) -> tuple[Transformer, list[list[Tensor]]]:
    """A model, and the reference's gradients of three batches, of 5, 6 and 7 tokens."""
    model, reference = pair(way)
    parameters, options = list(reference.parameters()), {"allow_unused": True, "materialize_grads": True}
    right = []
    for seed in range(3):
        loss = loss_of(reference(tokens_of(model, seed, length=5 + seed)))
        right.append(list(torch.autograd.grad(loss, parameters, **options)))
    return model, right


USES = st.lists(
    st.one_of(
        st.tuples(st.just("forward"), st.integers(0, 2)),
        st.tuples(st.just("evaluate"), st.integers(3, 4)),
        st.tuples(st.just("backward"), st.integers(0, 5)),
        st.tuples(st.just("partial"), st.integers(0, 5)),
        st.tuples(st.just("both"), st.integers(0, 5)),
    ),
    min_size=2,
    max_size=10,
)


@every_way
@given(uses=USES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_sequence_of_uses(way: Way, uses: list[tuple[str, int]]) -> None:
    """Forward passes, evaluations, whole, repeated, partial and joint backward passes, in any order."""
    model, right = models_to_use(way)
    parameters = list(model.parameters())
    alive: list[tuple[int, Tensor]] = []
    for use, number in uses:
        if use == "forward":
            alive.append((number, loss_of(model(tokens_of(model, number, length=5 + number)))))
        elif use == "evaluate":
            with torch.no_grad():
                model(tokens_of(model, number, length=number))
        elif alive:
            seed, loss = alive[number % len(alive)]
            if use == "partial":  # the last layer alone
                last = list(model.layers[-1].parameters())
                torch.autograd.grad(loss, last, retain_graph=True, allow_unused=True)
                continue
            expected = right[seed]
            if use == "both":
                other_seed, other = alive[(number + 1) % len(alive)]
                loss, expected = loss + other, [a + b for a, b in zip(expected, right[other_seed], strict=True)]
            found = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True, allow_unused=True)
            for one, wanted in zip(found, expected, strict=True):
                torch.testing.assert_close(one, wanted, **TOLERANCE)
