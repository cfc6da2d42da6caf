"""Grouped attention on a GPU: achieved FLOP/s against a large matrix product, and time against keeping the matrix.

    python benchmarks/score_residuals_gpu.py                 prints the tables; bfloat16, lengths 2048 to 32768
    python benchmarks/score_residuals_gpu.py --only layers   the attention of whole models alone: sums made again or kept

Eight heads of 64, causal, batch 1. First table: eight terms, the last layer of an eight-layer model. Operations are those of
derivation.md (scores once forward, once backward), so the kernels' second computation of the scores counts against them.

Second table: the attention of all layers, forward and backward: no residual, sums that every layer makes again (triton), and
the running sum. Beside it the time that its products or its traffic would take alone, whichever is longer (the roofline): it
reads and writes the sum three times per layer and its gradient twice and a half, in float32.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from addnorm import attend
from addnorm.kernels.grouped_attention import ReversibleSum, ScoreBuffers, SeparateLayers, problem_of

HEADS, HEAD_DIM, TERMS = 8, 64, 8
BUFFERS = ScoreBuffers()


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


def layers(way: str, queries: list[Tensor], keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """The sum of what all layers attend to."""
    attention = ReversibleSum(BUFFERS) if way == "running" else SeparateLayers(way, keep=False)
    total = torch.zeros_like(queries[0])
    for layer, value in enumerate(values):
        first = layer if way == "sdpa" else 0  # no residual: the layer's own term alone
        terms = slice(first, layer + 1)
        weights = [HEAD_DIM**-0.5] * (layer + 1 - first)
        problem = problem_of(queries[terms], keys[terms], value, weights, causal=True)
        total = total + attention.attend(problem, next_terms=layer + 2)
    return total


def measure_layers(length: int, depth: int, dtype: torch.dtype, peak: float, bandwidth: float, rounds: int) -> None:
    """Print a row per way for the attention of `depth` layers.

    Args:
        peak: TFLOP/s of a large product.
        bandwidth: GB/s of a large copy, read and write together.
    """
    shape = (1, HEADS, length, HEAD_DIM)
    queries, keys, values = (
        [torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for _ in range(depth)] for _ in range(3)
    )
    grad = torch.randn(shape, device="cuda", dtype=dtype)
    pairs = HEADS * length * length / 2
    products, traffic = depth * 7 * 2 * pairs * HEAD_DIM, depth * (3 * 2 + 2.5) * 4 * pairs
    floor = max(products / peak / 1e9, traffic / bandwidth / 1e6)
    for way in ("sdpa", "triton", "running"):
        torch.cuda.reset_peak_memory_stats()

        def step(way: str = way) -> object:
            return torch.autograd.grad(layers(way, queries, keys, values), (*queries, *keys, *values), grad)

        try:
            took = milliseconds(step, rounds)
        except torch.cuda.OutOfMemoryError:
            print(f"{length:6} {depth:6}  {way:8} out of memory")
            continue
        memory = torch.cuda.max_memory_allocated() / 2**30
        roof = f"{floor:12.2f}" if way == "running" else " " * 12
        print(f"{length:6} {depth:6}  {way:8} {took:10.2f} {roof} {memory:9.2f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 4096, 8192, 16384, 32768])
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--depths", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--only", choices=["layer", "layers"])
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
    if options.only != "layers":
        print("length  way          forward ms  share   backward ms  share   peak GiB")
        for length in options.lengths:
            measure(length, dtype, peak, options.rounds)
    if options.only != "layer":
        flat = torch.empty(2**28, device="cuda")
        bandwidth = 2 * 4 * 2**28 / milliseconds(flat.clone, options.rounds) / 1e6
        print(f"\na large copy: {bandwidth:.0f} GB/s\nlength layers  way      ms per step  roofline ms  peak GiB")
        for length in options.lengths:
            for depth in options.depths:
                measure_layers(length, depth, dtype, peak, bandwidth, options.rounds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
