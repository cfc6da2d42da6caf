"""Training steps of models whose residuals mix over depth, against the plain model: forward, backward, peak memory.

Sides take turns in one process, so that a slow minute hits all; the number is the median of the ratios to the plain step of the
same round. With --processor-time the clock counts what this process computed, which other work on the machine changes less.

    python benchmarks/joints.py                      width 256, 6 layers, length 256, batch 8
    python benchmarks/joints.py --sides streams dense --width 512 --rounds 11
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

import addnorm

VOCAB = 256
SIDES: dict[str, dict[str, Any]] = {
    "streams": {"residual": {"kind": "streams"}},
    "streams, static": {"residual": {"kind": "streams", "dynamic": False}},
    "streams, sinkhorn": {"residual": {"kind": "streams", "mixing": "sinkhorn"}},
    "streams, permutations": {"residual": {"kind": "streams", "mixing": "permutations"}},
    "attention": {"residual": {"kind": "attention"}},
    "attention, blocks of 4": {"residual": {"kind": "attention", "block": 4}},
    "dense": {"residual": {"kind": "dense"}},
    "dynamic_dense": {"residual": {"kind": "dynamic_dense"}},
    "cross": {"residual": {"kind": "cross"}},
    "lambdas": {"residual": {"kind": "lambdas", "skips": True, "backout": True}},
    "low_rank": {"residual": {"kind": "low_rank"}},
    "alternating": {"residual": {"kind": "alternating"}},
    "siamese": {"residual": {"kind": "siamese"}},
    "values, first": {"values": "first"},
}


def step(model: Any, tokens: torch.Tensor, clock: Callable[[], float]) -> float:
    """Seconds of one forward and backward pass."""
    start = clock()
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    seconds = clock() - start
    model.zero_grad(set_to_none=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--processor-time", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.processor_time else time.perf_counter
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    sizes = {"vocab": VOCAB, "width": options.width, "depth": options.depth, "heads": 4, "hidden": 4 * options.width}
    models = {
        side: addnorm.preset("llama", **sizes, max_seq=options.length, **SIDES.get(side, {})).build()
        for side in ("plain", *options.sides)
    }
    tokens = torch.randint(VOCAB, (options.batch, options.length + 1))
    ratios: dict[str, list[float]] = {side: [] for side in options.sides}
    for turn in range(options.rounds + 1):
        for side in options.sides:
            plain, own = step(models["plain"], tokens, clock), step(models[side], tokens, clock)
            if turn:  # the first round warms up
                ratios[side].append(own / plain)
    print("| residual | step, times plain | lowest | highest |\n|---|---|---|---|")
    for side, found in ratios.items():
        print(f"| {side} | {statistics.median(found):.2f} | {min(found):.2f} | {max(found):.2f} |")
    print(json.dumps({side: statistics.median(found) for side, found in ratios.items()}))


if __name__ == "__main__":
    main()
