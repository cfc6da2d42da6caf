"""Grouped attention on a GPU: achieved FLOP/s against a large matrix product, and time against keeping the matrix.

    python benchmarks/score_residuals_gpu.py                 prints the table; bfloat16, lengths 2048 to 32768

Eight terms, eight heads of 64, causal, batch 1: the last layer of an eight-layer model. Operations are those of derivation.md
(scores once forward, once backward), so the kernels' second computation of the scores counts against them.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from addnorm import attend

HEADS, HEAD_DIM, TERMS = 8, 64, 8


def milliseconds(call: Callable[[], object], rounds: int) -> float:
    """Median time on the device."""
    for _ in range(3):
        call()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def matrix_kept(queries: list[Tensor], keys: list[Tensor], value: Tensor) -> Tensor:
    """What peers do: the summed scores as a matrix."""
    scores = sum(q @ k.mT for q, k in zip(queries, keys, strict=True)) * (HEAD_DIM**-0.5 / TERMS)
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ value


def measure(length: int, dtype: torch.dtype, peak: float, rounds: int) -> None:
    """Print a row per way at this length; `peak` is a large product's TFLOP/s."""
    shape = (1, HEADS, length, HEAD_DIM)
    queries, keys = (
        [torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for _ in range(TERMS)] for _ in range(2)
    )
    value = torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True)
    grad = torch.randn(shape, device="cuda", dtype=dtype)
    weights = [HEAD_DIM**-0.5 / TERMS] * TERMS
    ways: dict[str, Callable[[], Tensor]] = {
        impl: partial(attend, queries, keys, value, weights, causal=True, impl=impl)
        for impl in ("triton", "streaming", "sdpa")
    }
    if length <= 8192:
        ways["matrix kept"] = partial(matrix_kept, queries, keys, value)
    pairs = HEADS * length * length / 2
    forward, backward = (2 * pairs * HEAD_DIM * n for n in (TERMS + 1, 3 * TERMS + 2))

    def both(way: Callable[[], Tensor]) -> object:
        return torch.autograd.grad(way(), (*queries, *keys, value), grad)

    for name, way in ways.items():
        torch.cuda.reset_peak_memory_stats()
        try:
            first = milliseconds(way, rounds)
            second = milliseconds(partial(both, way), rounds) - first
        except torch.cuda.OutOfMemoryError:
            print(f"{length:6}  {name:12} out of memory")
            continue
        shares = [operations / ms / 1e9 / peak for operations, ms in ((forward, first), (backward, second))]
        memory = torch.cuda.max_memory_allocated() / 2**30
        times = f"{first:10.2f}  {shares[0]:5.2f}   {second:11.2f}  {shares[1]:5.2f}"
        print(f"{length:6}  {name:12} {times}   {memory:8.2f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 4096, 8192, 16384, 32768])
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("this benchmark needs a CUDA device", file=sys.stderr)
        return 2
    dtype = getattr(torch, options.dtype)
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=dtype) for _ in range(2))
    peak = 2 * 8192**3 / milliseconds(lambda: a @ b, options.rounds) / 1e9
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.dtype}: a large product {peak:.0f} TFLOP/s\n"
    )
    print("length  way          forward ms  share   backward ms  share   peak GiB")
    for length in options.lengths:
        measure(length, dtype, peak, options.rounds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
