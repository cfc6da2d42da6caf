"""The kernels of `sinkhorn`, in Triton's interpreter, against ordinary operations in float64."""

import pytest
import torch
from torch import Tensor

from addnorm.kernels.depth_mixing.sinkhorn import sinkhorn

kernels = pytest.importorskip("addnorm.kernels.depth_mixing.balancing", reason="Triton is not installed")
pytestmark = [
    pytest.mark.skipif(not kernels.INTERPRETED, reason="the kernels were compiled, not interpreted"),
    pytest.mark.plain,  # the interpreter runs a kernel's source, which has no annotations to check
]
SHAPES = [(4, 70, 20, 0.0), (4, 3, 20, 1e-6), (3, 5, 2, 0.05), (1, 2, 3, 1e-3), (8, 2, 1, 0.0)]
every_shape = pytest.mark.parametrize(("streams", "positions", "rounds", "eps"), SHAPES)


def numbers(*shape: int, seed: int) -> Tensor:
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@every_shape
def test_matrices_are_those_of_ordinary_operations(streams: int, positions: int, rounds: int, eps: float) -> None:
    logits = numbers(streams, streams, positions, seed=0)
    found = kernels.balanced(logits, rounds, eps)
    torch.testing.assert_close(found.double(), sinkhorn(logits.double(), rounds, eps), rtol=1e-5, atol=1e-6)


@every_shape
def test_gradients_are_those_of_ordinary_operations(streams: int, positions: int, rounds: int, eps: float) -> None:
    logits, above = numbers(streams, streams, positions, seed=1), numbers(streams, streams, positions, seed=2)
    exact = logits.double().requires_grad_()
    (expected,) = torch.autograd.grad(sinkhorn(exact, rounds, eps), exact, above.double())
    found = kernels.balanced_gradient(logits, above, rounds, eps)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_logits_may_lie_in_any_order() -> None:
    logits = numbers(6, 3, 3, seed=3).permute(1, 2, 0)  # positions first, as a product makes them
    above = numbers(3, 3, 6, seed=4)
    assert torch.equal(kernels.balanced(logits, 3, 0.0), kernels.balanced(logits.contiguous(), 3, 0.0))
    assert torch.equal(
        kernels.balanced_gradient(logits, above, 3, 0.0),
        kernels.balanced_gradient(logits.contiguous(), above.transpose(0, 1).contiguous().transpose(0, 1), 3, 0.0),
    )
