"""Streaming holds no query × key tensor and its memory grows with the length, not with its square."""

import weakref
from dataclasses import replace

import pytest
import torch
from grouped_attention_cases import Case, cases, leaves
from torch.utils._python_dispatch import TorchDispatchMode

from addnorm.kernels.grouped_attention import attend, choose
from addnorm.kernels.grouped_attention.api import IMPLEMENTATIONS
from addnorm.kernels.grouped_attention.arguments import problem_of
from addnorm.kernels.grouped_attention.streaming import streaming
from addnorm.kernels.grouped_attention.tiles import CPU_BUDGET, tile_of
from sampled import sampled

pytestmark = pytest.mark.plain  # bytes of long sequences, of the shapes that test_grouped_attention.py checks
LONG = Case(query=256, key=256, biased=False, kv_heads=2, dtype=torch.float32)


class Watch(TorchDispatchMode):
    """Operations that ran, the largest storage that one of them made, and the most bytes alive at once.

    What the caller passed in does not count.
    """

    def __init__(self, arguments: dict[str, object]) -> None:
        super().__init__()
        self._passed = {tensor.untyped_storage().data_ptr() for tensor in leaves(arguments)}
        self.operations: list[str] = []
        self.largest = self.peak = 0
        self._alive: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.operations.append(str(function))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in self._passed:
                size = tensor.untyped_storage().nbytes()
                self.largest = max(self.largest, size)
                self._alive[id(tensor)] = (weakref.ref(tensor), size)
        self._alive = {key: (ref, size) for key, (ref, size) in self._alive.items() if ref() is not None}
        storages = {ref().untyped_storage().data_ptr(): size for ref, size in self._alive.values()}
        self.peak = max(self.peak, sum(storages.values()))
        return result


def watch(case: Case, implementation) -> Watch:
    arguments = case.arguments()
    with Watch(arguments) as seen:
        attended = implementation(problem_of(**arguments))
        torch.autograd.grad(attended, leaves(arguments), torch.ones_like(attended))
    return seen


def small_tiles(problem):
    return streaming(problem, budget=1)


def growth(implementation, case: Case = LONG) -> float:
    """How often the peak's step from L to 2L fits into the step from 2L to 4L: 2 if linear, 4 if quadratic."""
    peaks = [watch(replace(case, query=length, key=length), implementation).peak for length in (192, 384, 768)]
    return (peaks[2] - peaks[1]) / (peaks[1] - peaks[0])


@pytest.mark.parametrize("case", [LONG, replace(LONG, causal=False, weights="equal", terms=1)], ids=str)
def test_memory_is_linear_in_the_length(case: Case) -> None:
    assert growth(small_tiles, case) == pytest.approx(2, rel=0.05)


def test_the_measure_sees_a_matrix() -> None:
    assert growth(IMPLEMENTATIONS["reference"]) > 3.5


@pytest.mark.parametrize("dropout", sampled(2, [0.1, 0.0]))
def test_no_tensor_has_a_matrix_of_entries(dropout: float) -> None:
    case = replace(LONG, query=768, key=768, dropout=dropout)
    matrix = 768 * 768 * 4
    assert watch(case, small_tiles).largest < matrix / 2
    assert watch(case, IMPLEMENTATIONS["reference"]).largest >= matrix


@pytest.mark.parametrize(("terms", "kv_heads", "value_dim"), [(1, 4, 4), (1, 2, 4), (3, 4, 3), (3, 2, 16)])
def test_sdpa_takes_the_kernel_that_holds_no_matrix(terms: int, kv_heads: int, value_dim: int) -> None:
    case = replace(LONG, terms=terms, kv_heads=kv_heads, value_dim=value_dim, padded=False)
    seen = watch(case, IMPLEMENTATIONS["sdpa"])
    assert any("flash_attention_for_cpu_backward" in operation for operation in seen.operations)
    assert seen.largest < 256 * 256 * 4


@pytest.mark.parametrize("case", cases(causal=(True, False), kv_heads=(2, 4)), ids=str)
def test_a_bias_that_wants_no_gradient_gets_no_buffer(case: Case) -> None:
    arguments = replace(case, query=130, key=130).arguments()
    arguments["bias"] = arguments["bias"].detach()
    with Watch(arguments) as seen:
        streaming(problem_of(**arguments), budget=1).sum().backward()
    assert seen.largest < arguments["bias"].numel() * arguments["bias"].element_size()


@pytest.mark.parametrize("length", [1, 100, 128, 1000, 4096, 2**16])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_tile_stays_within_its_budget_or_256_rows_a_thread(
    length: int, kv_heads: int, threads: int, monkeypatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    with torch.device("meta"):
        problem = problem_of(
            [torch.empty(2, 4, length, 4)],
            [torch.empty(2, kv_heads, length, 4)],
            torch.empty(2, kv_heads, length, 4),
            [1.0],
            causal=True,
        )
    tile = tile_of(problem)
    assert 1 <= tile.rows <= length
    entries = tile.slabs * tile.rows * problem.group * length
    assert entries <= max(CPU_BUDGET, threads * 256 * length)
    assert tile.slabs >= min(threads, 2 * kv_heads if entries <= CPU_BUDGET else kv_heads)
    assert tile_of(problem, budget=1).slabs == 1


def chosen(**changes) -> str:
    case = replace(Case(terms=1, value_dim=4, biased=False, padded=False), **changes)
    return choose(problem_of(**case.arguments()))


def test_auto_takes_what_it_says() -> None:
    assert chosen() == "sdpa"
    assert chosen(padded=True, causal=False) == "sdpa"
    assert chosen(query=1, padded=True) == "streaming"
    assert chosen(query=3) == "streaming"
    assert chosen(dropout=0.1) == "streaming"
    assert chosen(biased=True) == "streaming"
    assert chosen(value_dim=3) == "streaming"
    assert chosen(terms=8) == "sdpa"
    assert chosen(terms=9) == "streaming"


@pytest.mark.parametrize("terms", [1, 8, 9])
def test_auto_holds_no_matrix(terms: int) -> None:
    case = replace(LONG, terms=terms, value_dim=4, padded=False, query=1024, key=1024, dtype=torch.float32)
    arguments = case.arguments()
    with Watch(arguments) as seen:
        attend(**arguments).sum().backward()
    assert seen.largest < 4 * 1024 * 1024 * 4
