"""The bytes that live at one time: what is freed counts no more, and neither does what was there before."""

import pytest
import torch
from torch.nn import functional as F

from addnorm.supervision.live_bytes import LiveBytes

pytestmark = pytest.mark.plain

SIZE = 4 * 1000


def test_freed_tensors_do_not_count() -> None:
    x = torch.ones(1000)
    with LiveBytes([x]) as live:
        y = x + 1
        y = y * 2  # two at once
        view = y[10:].unsqueeze(0)
        y.add_(1)
        del y
        assert live.peak() == 2 * SIZE
        z = [view + 1 for _ in range(2)]
        del z, view
    assert live.peak() == SIZE + 2 * (SIZE - 40)
    with LiveBytes([]) as live:
        torch.empty(1000)
        torch.empty(1000)
    assert live.peak() == SIZE


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_backward_pass_holds_what_was_saved_and_the_gradients(device: str) -> None:
    weight = torch.ones(1000, device=device, requires_grad=True)
    with LiveBytes([weight]) as live:
        exponential = torch.exp(weight)  # saves its result
        exponential.sum().backward()
        del exponential
    # The result, and the gradient: that of a sum is one number, expanded.
    assert live.peak() == pytest.approx(2 * SIZE, abs=64)
    assert live.peak(without=[weight.grad]) == pytest.approx(SIZE, abs=64)


def test_gradients_that_are_left_out_make_room_for_nothing_else() -> None:
    weight = torch.ones(100, 100, requires_grad=True)
    with LiveBytes([weight]) as live:
        F.linear(torch.ones(1, 100), weight).sum().backward()
    assert live.peak(without=[None, weight.grad]) < live.peak() - 40_000 + 2_000
