"""The fast forms of sums over depth: their plain forms define the result, and serve what the fast ones do not know."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from addnorm.kernels.depth_mixing import (
    normed_product,
    normed_product_beside,
    read_streams,
    sinkhorn,
    two_forms,
    weighted_sum,
    write_streams,
)
from addnorm.kernels.depth_mixing.sinkhorn import _Sinkhorn
from sampled import sampled

sinkhorn_module = sys.modules[_Sinkhorn.__module__]  # the package has a function of that name

BATCH, SEQ, STREAMS, WIDTH = 2, 5, 3, 4


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def summed(weights: Tensor, *vectors: Tensor) -> Tensor:
    return weighted_sum(weights, vectors)


def identical(streams: Tensor, post: Tensor, y: Tensor) -> Tensor:
    return write_streams(streams, None, post, y)


def together(function: Callable[..., tuple[Tensor, ...]]) -> Callable[..., Tensor]:
    """The results of one operation as one tensor."""
    return lambda *tensors: torch.cat([result.flatten() for result in function(*tensors)])


VECTOR, STREAM = (BATCH, SEQ, WIDTH), (BATCH, SEQ, STREAMS, WIDTH)
CASES: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "sum": (summed, [(3, BATCH, SEQ), VECTOR, VECTOR, VECTOR]),
    "sum, static": (summed, [(3,), VECTOR, VECTOR, VECTOR]),
    "sum of one": (summed, [(1, BATCH, SEQ), VECTOR]),
    "product": (partial(normed_product, eps=1e-8), [VECTOR, (6, WIDTH)]),
    "product of streams": (partial(normed_product, eps=0.1), [STREAM, (6, WIDTH)]),
    "product beside": (together(partial(normed_product_beside, eps=1e-8)), [VECTOR, (6, WIDTH)]),
    "read": (together(read_streams), [STREAM, (BATCH, SEQ, STREAMS)]),
    "read, static": (together(read_streams), [STREAM, (STREAMS,)]),
    "streams": (write_streams, [STREAM, (BATCH, SEQ, STREAMS, STREAMS), (BATCH, SEQ, STREAMS), VECTOR]),
    "streams, static": (write_streams, [STREAM, (STREAMS, STREAMS), (STREAMS,), VECTOR]),
    "streams, identity": (identical, [STREAM, (BATCH, SEQ, STREAMS), VECTOR]),
    "sinkhorn": (partial(sinkhorn, rounds=4), [(STREAMS, STREAMS, BATCH, SEQ)]),
    "sinkhorn, static": (partial(sinkhorn, rounds=20), [(STREAMS, STREAMS)]),
    "sinkhorn with eps": (partial(sinkhorn, rounds=4, eps=0.01), [(STREAMS, STREAMS, BATCH, SEQ)]),
    "sinkhorn of one round": (partial(sinkhorn, rounds=1, eps=0.01), [(STREAMS, STREAMS, BATCH, SEQ)]),
}
every_case = pytest.mark.parametrize("case", CASES)


def given(case: str) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    function, shapes = CASES[case]
    return function, tuple(numbers(*shape, seed=seed).requires_grad_() for seed, shape in enumerate(shapes))


def with_gradients(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    out = function(*inputs)
    return out, *torch.autograd.grad((out * numbers(*out.shape, seed=9)).sum(), inputs)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes every operation take its plain form from now on."""
    return lambda: monkeypatch.setattr(two_forms, "_takes_plain_form", lambda tensors: True)


@pytest.fixture(params=[3 * WIDTH, 2**17], ids=["small chunks", "one chunk"])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_forms, "_CHUNK", request.param)


@every_case
@pytest.mark.usefixtures("chunk")
def test_the_fast_form_is_the_plain_one(case: str, plain: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    function, inputs = given(case)
    calls = []
    apply = two_forms._Fast.apply
    monkeypatch.setattr(two_forms._Fast, "apply", lambda *args: (calls.append(args), apply(*args))[1])
    found = with_gradients(function, inputs)
    assert len(calls) == 1
    plain()
    torch.testing.assert_close(found, with_gradients(function, inputs), rtol=1e-12, atol=1e-12)
    assert len(calls) == 1


@every_case
def test_activation_checkpointing_changes_nothing(case: str) -> None:
    function, inputs = given(case)

    def checkpointed(*tensors: Tensor) -> Tensor:
        return checkpoint(lambda *again: function(*(each * 1 for each in again)), *tensors, use_reentrant=False)

    torch.testing.assert_close(
        with_gradients(checkpointed, inputs), with_gradients(function, inputs), rtol=0, atol=1e-14
    )


@pytest.mark.plain  # hundreds of calls of what the other tests call
@pytest.mark.parametrize("case", sampled(4, CASES))
def test_derivatives_are_those_of_small_steps(case: str) -> None:
    function, inputs = given(case)
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


@every_case
def test_gradients_of_some_inputs_alone(case: str) -> None:
    function, inputs = given(case)
    _, *expected = with_gradients(function, inputs)
    for index, own in enumerate(inputs):
        alone = tuple(value if value is own else value.detach() for value in inputs)
        out = function(*alone)
        (found,) = torch.autograd.grad((out * numbers(*out.shape, seed=9)).sum(), [own])
        torch.testing.assert_close(found, expected[index], rtol=1e-12, atol=1e-12)


@every_case
@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script. is deprecated:DeprecationWarning"
)  # torch's own, at the first dual
def test_transformations_get_the_same_numbers(case: str) -> None:
    function, inputs = given(case)
    out, *expected = with_gradients(function, inputs)
    inputs = tuple(value.detach() for value in inputs)
    above, tangents = numbers(*out.shape, seed=9), tuple(numbers(*value.shape, seed=7) for value in inputs)

    def loss(*values: Tensor) -> Tensor:
        return (function(*values) * above).sum()

    assert_close = partial(torch.testing.assert_close, rtol=1e-11, atol=1e-11)
    found = torch.func.grad(loss, argnums=tuple(range(len(inputs))))(*inputs)
    assert_close(found, tuple(expected))
    _, along = torch.func.jvp(loss, inputs, tangents)
    assert_close(along, sum((one * other).sum() for one, other in zip(expected, tangents, strict=True)))
    with torch.autograd.forward_ad.dual_level():
        duals = [torch.autograd.forward_ad.make_dual(*pair) for pair in zip(inputs, tangents, strict=True)]
        assert_close(torch.autograd.forward_ad.unpack_dual(loss(*duals)).tangent, along)


@every_case
def test_batched_gradients_are_single_ones(case: str) -> None:
    function, inputs = given(case)
    out = function(*inputs)
    several = numbers(3, *out.shape, seed=9)
    batched = torch.autograd.grad(out, inputs, several, is_grads_batched=True, retain_graph=True)
    single = [torch.autograd.grad(out, inputs, above, retain_graph=True) for above in several]
    for found, expected in zip(batched, zip(*single, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(expected), rtol=1e-12, atol=1e-12)


def test_inputs_that_are_computed_from_each_other_count_once() -> None:
    """The gradients that can be differentiated again come from the plain form, run once more on the inputs."""
    x = numbers(*VECTOR).requires_grad_()
    out = weighted_sum(x[None, ..., 0], [x])  # the weight is the vector's first entry
    (found,) = torch.autograd.grad(out.sum(), [x], create_graph=True)
    (expected,) = torch.autograd.grad((x[..., :1] * x).sum(), [x])
    torch.testing.assert_close(found, expected)


def test_rows_that_do_not_lie_side_by_side() -> None:
    function, inputs = given("streams")
    strange = (
        inputs[0].transpose(0, 1).contiguous().transpose(0, 1),
        *inputs[1:-1],
        inputs[-1][..., :1].expand(VECTOR),
    )
    found, *_ = with_gradients(function, strange)
    streams, mix, post, y = strange
    expected = torch.einsum("bsij,bsjw->bsiw", mix, streams) + post[..., None] * y[..., None, :]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_sums_are_rounded_once(dtype: torch.dtype) -> None:
    rows, x = numbers(6, 64).to(dtype), numbers(2, 3, 64, seed=1).to(dtype)
    found = normed_product(x, rows, 1e-8)
    assert found.dtype == torch.float32
    weights = torch.full((8,), 1 / 8)
    total = weighted_sum(weights, [x] * 8)
    assert torch.equal(total, x)


def test_autocast_does_not_narrow_them() -> None:
    for case in CASES:
        function, shapes = CASES[case]
        inputs = tuple(numbers(*shape, seed=seed).float().requires_grad_() for seed, shape in enumerate(shapes))

        def found(function: Callable[..., Tensor] = function, inputs: Any = inputs) -> tuple[Tensor, ...]:
            out = function(*inputs)
            return out, *torch.autograd.grad(out.square().sum(), inputs)

        expected = found()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert all(map(torch.equal, found(), expected)), case


@pytest.mark.parametrize("size", [1e-3, 0.1, 1.0, 30.0])
def test_sinkhorns_gradient_is_that_of_the_rounds(size: float) -> None:
    """Also where the matrices are balanced after few rounds, and the others are left out."""
    logits = (size * numbers(4, 4, 2, 1030)).requires_grad_()  # two chunks
    above = numbers(4, 4, 2, 1030, seed=1)
    found, expected = (
        torch.autograd.grad((form(logits) * above).sum(), [logits])[0]
        for form in (partial(sinkhorn, rounds=20), _Sinkhorn(20, 0.0).plain)
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("size", "left_out"), [(0.0, True), (1e-3, True), (3.0, False)])
def test_rounds_of_balanced_matrices_are_left_out(size: float, left_out: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, above = size * numbers(4, 4, 30), numbers(4, 4, 30, seed=1)
    asked: list[int] = []
    changes = sinkhorn_module._changes_nothing
    monkeypatch.setattr(
        sinkhorn_module, "_changes_nothing", lambda done, sums: asked.append(done) or changes(done, sums)
    )
    rounds = _Sinkhorn(20, 0.0)
    found, _ = rounds.fast(logits)
    assert (max(asked) < 19) == left_out
    torch.testing.assert_close(found, rounds.plain(logits), rtol=1e-14, atol=1e-15)
    (gradient,) = rounds.gradients(above, (True,), (), logits)
    matrix = rounds.plain(logits.requires_grad_())
    torch.testing.assert_close(gradient, torch.autograd.grad(matrix, [logits], above)[0], rtol=1e-13, atol=1e-14)


def test_what_is_kept_for_the_backward_pass() -> None:
    """Nothing but the inputs of the size of streams: not the vectors side by side, nor the matrices of any round."""

    def kept(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> int:
        own, saved = {value.untyped_storage()._cdata for value in inputs}, {}

        def pack(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in own:
                saved[storage._cdata] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = function(*inputs)
        return sum(saved.values()) if out.requires_grad else -1

    assert kept(*given("sum")) == 0
    assert kept(*given("sinkhorn")) == 0
    assert kept(*given("streams")) == 0
    assert kept(*given("product")) == BATCH * SEQ * (6 + 1) * 8
