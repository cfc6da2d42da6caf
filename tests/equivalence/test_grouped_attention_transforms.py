"""Streaming under torch's transforms: func, autocast, meta tensors, export, compile."""

import pytest
import torch
from grouped_attention_cases import Case, with_gradients
from torch.utils.flop_counter import FlopCounterMode

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention import attend
from addnorm.kernels.grouped_attention.arguments import problem_of
from addnorm.kernels.grouped_attention.streaming import streaming

CASE = Case(query=130, key=130, padded=False)  # Both items live, so sums over them are seen.
NAMES = ("queries", "keys", "value", "weights", "bias")


def stacked(case: Case = CASE, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """The differentiable arguments, terms stacked, detached."""
    arguments = case.arguments(seed)
    arguments |= {name: torch.stack(arguments[name]) for name in ("queries", "keys")}
    return tuple(arguments[name].detach() for name in NAMES)


def loss(impl: str, case: Case = CASE):
    rest = {name: value for name, value in case.arguments().items() if name not in NAMES}

    def of(*tensors: torch.Tensor) -> torch.Tensor:
        return attend(**dict(zip(NAMES, tensors, strict=True)), **rest, impl=impl).square().sum()

    return of


def test_func_grad() -> None:
    tensors = stacked()
    found = torch.func.grad(loss("streaming"), argnums=tuple(range(5)))(*tensors)
    torch.testing.assert_close(found, torch.func.grad(loss("reference"), argnums=tuple(range(5)))(*tensors))


@pytest.mark.parametrize("mapped", [("queries",), ("bias",), ("weights", "keys"), NAMES])
def test_gradients_of_every_sample(mapped: tuple[str, ...]) -> None:
    samples = [stacked(seed=seed) for seed in range(3)]
    axes = tuple(0 if name in mapped else None for name in NAMES)
    tensors = [
        torch.stack(several) if axis == 0 else several[0]
        for axis, several in zip(axes, zip(*samples, strict=True), strict=True)
    ]
    found, expected = (
        torch.func.vmap(torch.func.grad(loss(impl), argnums=tuple(range(5))), in_dims=axes)(*tensors)
        for impl in ("streaming", "reference")
    )
    torch.testing.assert_close(found, expected)


def test_vmap_refuses_dropout() -> None:
    case = Case(dropout=0.5)
    tensors = [tensor.expand(2, *tensor.shape) for tensor in stacked(case)]
    with pytest.raises(InputError, match=r"vmap over attend takes dropout=0.0.*got 0.5"):
        torch.func.vmap(loss("streaming", case))(*tensors)


def test_a_second_derivative_is_refused() -> None:
    arguments = Case().arguments()
    attended = attend(**arguments, impl="streaming").square().sum()
    (gradient,) = torch.autograd.grad(attended, arguments["value"], create_graph=True)
    with pytest.raises(InputError, match=r"'streaming' and .*: expected a first derivative.*Use impl='reference'"):
        gradient.sum().backward()


def test_autocast_does_not_narrow_the_sums() -> None:
    arguments = Case(query=64, key=64, dtype=torch.float32).arguments()
    expected = with_gradients(attend(**arguments, impl="streaming"), arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = with_gradients(attend(**arguments, impl="streaming"), arguments)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_meta_tensors_count_the_same_operations() -> None:
    counts = []
    for device in ("cpu", "meta"):
        arguments = Case(query=130, key=130, biased=False, padded=False).arguments()
        for name in ("queries", "keys"):
            arguments[name] = [tensor.detach().to(device).requires_grad_() for tensor in arguments[name]]
        for name in ("value", "weights"):
            arguments[name] = arguments[name].detach().to(device).requires_grad_()
        with FlopCounterMode(display=False) as counter:
            streaming(problem_of(**arguments), budget=1).sum().backward()
        counts.append(counter.get_total_flops())
    # derivation.md: 2 flops per multiply-add, forward T·d + v, backward 3·T·d + 2·v per seen pair of a tile.
    rows = [32, 64, 96, 128, 130]
    pairs = 2 * 4 * sum((stop - start) * stop for start, stop in zip([0, *rows], rows, strict=False))
    assert counts == [2 * pairs * (4 * 3 * 4 + 3 * 3)] * 2


class Attention(torch.nn.Module):
    def __init__(self, case: Case, impl: str = "streaming") -> None:
        super().__init__()
        self.impl = impl
        self.rest = {name: value for name, value in case.arguments().items() if name not in NAMES}

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return attend(**dict(zip(NAMES, tensors, strict=True)), **self.rest, impl=self.impl)


@pytest.mark.compiled
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # torch's own export of torch 2.13
def test_exports_to_the_same_numbers(trained: bool) -> None:
    tensors = tuple(tensor.clone().requires_grad_(trained) for tensor in stacked())
    exported = torch.export.export(Attention(CASE), tensors, strict=False).module()
    found, expected = exported(*tensors), Attention(CASE)(*tensors)
    torch.testing.assert_close(found, expected)
    if trained:
        torch.testing.assert_close(*(torch.autograd.grad(out.square().sum(), tensors) for out in (found, expected)))


@pytest.mark.compiled
def test_auto_exports_to_torchs_own_operation_although_it_would_stream() -> None:
    tensors = stacked()
    module = Attention(CASE, "auto")
    program = torch.export.export(module, tensors, strict=False)
    called = [str(node.target) for node in program.graph.nodes]
    assert called.count("aten.scaled_dot_product_attention.default") == 1
    assert not any("slice_scatter" in each or "copy_" in each for each in called)
    torch.testing.assert_close(program.module()(*tensors), module(*tensors))


@pytest.mark.thorough  # tests/contracts/test_traced.py compiles whole models
@pytest.mark.compiled
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo's own, torch 2.13
def test_compiles_to_the_same_numbers(trained: bool) -> None:
    tensors = tuple(tensor.clone().requires_grad_(trained) for tensor in stacked())
    module = Attention(CASE)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=False)
    found, expected = compiled(*tensors), module(*tensors)
    torch.testing.assert_close(found, expected)
    if trained:
        torch.testing.assert_close(*(torch.autograd.grad(out.square().sum(), tensors) for out in (found, expected)))
