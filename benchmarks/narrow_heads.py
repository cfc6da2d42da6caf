"""Attention of short sequences with narrow heads, forward and backward: tiles, torch's kernel and the plain computation.

    python benchmarks/narrow_heads.py
    python benchmarks/narrow_heads.py --threads 2 --rounds 31

Only ratios within a row compare: the speed of a machine changes between rows.
"""

import argparse
from collections.abc import Callable

import torch
from interleaved import interleaved

import addnorm

BATCH, HEADS, KV_HEADS, LENGTH = 16, 4, 2, 128
WIDTHS = (8, 12, 16, 32, 64)
IMPLEMENTATIONS = ("sdpa", "streaming", "reference")


def step(impl: str, width: int) -> Callable[[], None]:
    """One forward and backward pass of attention with heads of a width."""
    query, key, value = (
        torch.randn(BATCH, LENGTH, heads, width).transpose(1, 2).requires_grad_()
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    grad = torch.randn(BATCH, HEADS, LENGTH, width)

    def call() -> None:
        addnorm.attend([query], [key], value, [width**-0.5], causal=True, impl=impl).backward(grad)

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=51)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        f"{BATCH} sequences of {LENGTH}, {HEADS} heads ({KV_HEADS} of keys), causal, ms, {options.threads} thread(s)\n"
    )
    print(f"| head width | {' | '.join(IMPLEMENTATIONS)} |\n|---|{'---|' * len(IMPLEMENTATIONS)}")
    for width in WIDTHS:
        seconds = interleaved({impl: step(impl, width) for impl in IMPLEMENTATIONS}, rounds=options.rounds)
        print(f"| {width} | {' | '.join(f'{1000 * seconds[impl]:.1f}' for impl in IMPLEMENTATIONS)} |", flush=True)


if __name__ == "__main__":
    main()
