"""The GPU of paper finds what it is there to find: each fault that these checks are for is planted once."""

import counters
import pytest
import torch
from carbon import carbon


def test_a_tensor_on_the_cpu_is_refused() -> None:
    with pytest.raises(RuntimeError, match="on the same device"):
        torch.ones(2, 2, device="cuda") @ torch.ones(2, 2)


@pytest.mark.parametrize(
    ("kind", "waiting"),
    [
        ("wait: stream", lambda tensor: tensor.sum().item()),
        ("wait: stream", lambda tensor: tensor.cpu()),
        ("wait: copy of pageable memory", lambda tensor: torch.tensor([1.0, 2.0], device="cuda")),
    ],
)
def test_a_wait_is_seen_with_its_place(kind, waiting) -> None:
    tensor = torch.ones(3, device="cuda")
    with counters.waits(part="/gpu_check/") as waits:
        tensor * 2
        assert not waits
        waiting(tensor)
    places = {place for each, place in waits if each == kind}
    assert any(place.startswith("test_paper.py") for place in places), waits


def test_a_pinned_copy_waits_for_nothing() -> None:
    pinned = torch.ones(3).pin_memory()
    with counters.waits() as waits:
        pinned.to("cuda", non_blocking=True)
    assert not waits


def test_products_are_counted_by_type() -> None:
    wide, narrow = (torch.ones(8, 8, device="cuda", dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
    with counters.counted() as counts:
        wide @ wide
        torch.nn.functional.linear(wide, wide, wide[0])
        narrow @ narrow
        torch.nn.functional.linear(narrow, narrow, narrow[0])
        narrow.expand(4, 8, 8) @ narrow
    assert counts["product float32"] == 2
    assert counts["product bfloat16"] == 3
    assert counts["launch"] == sum(n for name, n in counts.items() if name.startswith("kernel "))


def test_memory_ends_where_the_card_does() -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        torch.empty(total + 1, dtype=torch.uint8, device="cuda")


def test_carbon_copies_have_the_cpus_numbers_and_gradients() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(4, 6), torch.randn(3, 6)

    def outcome(device: str) -> list[torch.Tensor]:
        own = weight.to(device).requires_grad_()
        logits = torch.nn.functional.linear(x.to(device), own)
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 0], device=device))
        (gradient,) = torch.autograd.grad(loss, own)
        return [loss.detach().cpu(), gradient.cpu()]

    expected = outcome("cpu")
    with carbon() as copies:
        got = outcome("cuda")
    assert not copies.unknown
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
