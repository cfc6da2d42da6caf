"""Training steps of models whose residuals mix over depth, against the plain model: forward, backward, peak memory.

Sides take turns in one process, so that a slow minute hits all; the number is the median of the ratios to the plain step of the
same round. With --processor-time the clock counts what this process computed, which other work on the machine changes less.
Forms of x-transformers (extra `bench`) are divided by its own plain model.

    python benchmarks/joints.py                      width 256, 6 layers, length 256, batch 8
    python benchmarks/joints.py --sides streams dense --width 512 --rounds 11
    python benchmarks/joints.py --peers              x-transformers' forms and ours of the same joints, in turn
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
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
PEERS: dict[str, dict[str, Any]] = {
    "x-transformers streams, sinkhorn": {"num_residual_streams": 4},
    "x-transformers attention": {"attn_aggregated_residuals": True},
    "x-transformers dynamic_dense": {"integrate_layers": True},
    "x-transformers values, first": {"add_value_residual": True},
}
"""Options of its decoder for its form of a joint: as many streams, and Sinkhorn's rounds as it chooses them."""


def built(side: str, sizes: dict[str, int], length: int) -> nn.Module:
    """A model of ours or of theirs: RMS norms, rotary positions, gated feed-forward branches, no biases."""
    if not side.startswith("x-transformers"):
        return addnorm.preset("llama", **sizes, max_seq=length, **SIDES.get(side, {})).build()
    from x_transformers import Decoder, TransformerWrapper

    heads, width = sizes["heads"], sizes["width"]
    layers = Decoder(
        dim=width,
        depth=sizes["depth"],
        heads=heads,
        attn_dim_head=width // heads,
        attn_flash=True,
        use_rmsnorm=True,
        rotary_pos_emb=True,
        ff_glu=True,
        ff_swish=True,
        ff_no_bias=True,
        **PEERS.get(side, {}),
    )
    return TransformerWrapper(num_tokens=sizes["vocab"], max_seq_len=length, use_abs_pos_emb=False, attn_layers=layers)


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
    parser.add_argument("--sides", nargs="+", choices=[*SIDES, *PEERS])
    parser.add_argument("--peers", action="store_true", help="the joints that x-transformers has too, of both")
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
    shared = [each for peer in PEERS for each in (peer.removeprefix("x-transformers "), peer)]
    sides = options.sides or (shared if options.peers else list(SIDES))
    plain_of = {side: "x-transformers plain" if side in PEERS else "plain" for side in sides}
    models = {side: built(side, sizes, options.length) for side in dict.fromkeys([*plain_of.values(), *sides])}
    tokens = torch.randint(VOCAB, (options.batch, options.length + 1))
    ratios: dict[str, list[float]] = {side: [] for side in sides}
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(options.rounds + 1):
        for side in sides:
            plain, own = step(models[plain_of[side]], tokens, clock), step(models[side], tokens, clock)
            if turn:  # the first round warms up
                ratios[side].append(own / plain)
                seconds[side].append(own)
    print("| residual | step, times plain | lowest | highest | seconds |\n|---|---|---|---|---|")
    for side, found in ratios.items():
        print(
            f"| {side} | {statistics.median(found):.2f} | {min(found):.2f} | {max(found):.2f} "
            f"| {statistics.median(seconds[side]):.2f} |"
        )
    print(json.dumps({side: statistics.median(found) for side, found in ratios.items()}))


if __name__ == "__main__":
    main()
