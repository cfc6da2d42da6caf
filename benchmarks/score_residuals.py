"""Training steps of models with score residuals: ours, x-transformers' `residual_attn`, and both without the residual.

Each side runs in a process of its own, so that its peak memory is its own; a step of one follows a step of another, so that
a slow minute hits all. Time: forward and backward of the whole model. Memory: the process's peak minus what it held
before the first step (the interpreter, torch and the model).

    python benchmarks/score_residuals.py                     the table: lengths 512, 2048, 4096
    python benchmarks/score_residuals.py --lengths 4096 --sides "addnorm own" "addnorm sum" "addnorm sum, bfloat16"
    python benchmarks/score_residuals.py --sweep depth       time against depth, with the floor that the products set
    python benchmarks/score_residuals.py --sweep length      both write a plot, too
"""

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from addnorm.training.use import peak_bytes

VOCAB = 256
WIDTH, HEADS = 512, 8


def ours(scores: str, length: int, depth: int) -> nn.Module:
    import addnorm

    kind, _, attention = scores.partition("/")
    return addnorm.preset(
        "gpt2",
        vocab=VOCAB,
        width=WIDTH,
        depth=depth,
        heads=HEADS,
        hidden=4 * WIDTH,
        max_seq=length,
        dropout=0.0,
        scores=kind,
        attention=attention or "auto",
    ).build()


def theirs(length: int, depth: int, **options: bool) -> nn.Module:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=WIDTH, depth=depth, heads=HEADS, attn_dim_head=WIDTH // HEADS, **options)
    return TransformerWrapper(num_tokens=VOCAB, max_seq_len=length, attn_layers=layers)


SIDES: dict[str, Callable[[int, int], nn.Module]] = {
    "addnorm own": lambda length, depth: ours("own", length, depth),
    "addnorm sum": lambda length, depth: ours("sum", length, depth),
    "addnorm mean": lambda length, depth: ours("mean", length, depth),
    "addnorm sum, streaming": lambda length, depth: ours("sum/streaming", length, depth),
    "addnorm weighted": lambda length, depth: ours("weighted", length, depth),
    "addnorm weighted, streaming": lambda length, depth: ours("weighted/streaming", length, depth),
    # Under autocast; sums stay float32.
    "addnorm own, bfloat16": lambda length, depth: ours("own", length, depth),
    "addnorm sum, bfloat16": lambda length, depth: ours("sum", length, depth),
    "x-transformers flash": lambda length, depth: theirs(length, depth, attn_flash=True),
    "x-transformers residual_attn": lambda length, depth: theirs(length, depth, residual_attn=True),
}

DEFAULT = ["addnorm own", "addnorm sum", "addnorm sum, streaming", "x-transformers residual_attn"]


def serve(side: str, length: int, depth: int, threads: int, pipe: Connection) -> None:
    """One side's process: a step per request, then its peak memory."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = SIDES[side](length, depth)
    tokens = torch.randint(VOCAB, (1, length + 1))
    before = peak_bytes()
    while pipe.recv() == "step":
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=side.endswith("bfloat16")):
            loss = F.cross_entropy(model(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        seconds = time.perf_counter() - start
        model.zero_grad(set_to_none=True)
        peak = peak_bytes()
        pipe.send((seconds, (peak - before) / 2**30))


def measure(sides: list[str], length: int, depth: int, *, rounds: int, threads: int) -> dict[str, tuple[float, float]]:
    """Median seconds and peak GiB of each side, after a step to warm up; steps of minutes need none."""
    context = multiprocessing.get_context("spawn")
    pipes = {}
    for side in sides:
        mine, other = context.Pipe()
        context.Process(target=serve, args=(side, length, depth, threads, other), daemon=True).start()
        pipes[side] = mine
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    peaks: dict[str, float] = {}
    for turn in range(0 if length <= 8192 else 1, rounds + 1):
        for side, pipe in pipes.items():
            pipe.send("step")
            took, peaks[side] = pipe.recv()
            if turn:  # the first step warms up
                seconds[side].append(took)
    for pipe in pipes.values():
        pipe.send("end")
    return {side: (statistics.median(seconds[side]), peaks[side]) for side in sides}


def product_speed() -> float:
    """Operations per second of a large float32 matrix product, the best of several."""
    a, b = torch.randn(4096, 4096), torch.randn(4096, 4096)
    best = 0.0
    for _ in range(4):
        start = time.perf_counter()
        a @ b
        best = max(best, 2 * 4096**3 / (time.perf_counter() - start))
    return best


def attention_operations(length: int, depth: int, *, terms: Callable[[int], int]) -> float:
    """Operations of the attention products, forward and backward, causal: derivation.md's count."""
    pairs = HEADS * length * length / 2
    head_dim = WIDTH // HEADS
    return sum(pairs * 2 * head_dim * (4 * terms(layer) + 3) for layer in range(depth))


def other_operations(length: int, depth: int) -> float:
    """Operations of every other product, forward and backward: 3 × 2 × parameters × tokens."""
    return 6.0 * length * (depth * 12 * WIDTH * WIDTH + WIDTH * VOCAB)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048, 4096])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=DEFAULT)
    parser.add_argument("--sweep", choices=["depth", "length"])
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 4, 8, 16, 32], help="of --sweep depth")
    parser.add_argument("--out", type=Path, help="also write the rows as JSON")
    parser.add_argument("--plot", type=Path, help="where a sweep's plot goes; docs/images/score-residuals-SWEEP.svg")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.sweep == "depth":
        cases = [(1024, depth) for depth in options.depths]
    elif options.sweep == "length":
        cases = [(length, options.depth) for length in (256, 512, 1024, 2048, 4096, 8192, 16384)]
    else:
        cases = [(length, options.depth) for length in options.lengths]
    sides = ["addnorm own", "addnorm sum", "addnorm sum, streaming"] if options.sweep else options.sides
    rows = []
    print("| length | depth | side | seconds | peak GiB | floor s (at GFLOP/s) |\n|---|---|---|---|---|---|")
    for length, depth in cases:
        speed = product_speed()
        fitting = [side for side in sides if fits(side, length, depth)]
        rounds = options.rounds if length < 8192 else 1
        found = measure(fitting, length, depth, rounds=rounds, threads=options.threads)
        for side, (seconds, gigabytes) in found.items():
            joined = side.endswith("streaming")
            products = attention_operations(
                length, depth, terms=lambda layer, joined=joined: layer + 1 if joined else 1
            )
            floor = (products + other_operations(length, depth)) / speed
            row = {"length": length, "depth": depth, "side": side, "seconds": seconds, "peak_gib": gigabytes}
            rows.append({**row, "floor_seconds": floor, "product_gflops": speed / 1e9})
            floor_text = "" if "bfloat16" in side or "residual_attn" in side else f"{floor:.2f} ({speed / 1e9:.0f})"
            print(f"| {length} | {depth} | {side} | {seconds:.2f} | {gigabytes:.2f} | {floor_text} |", flush=True)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
    if options.sweep:
        images = Path(__file__).parents[1] / "docs" / "images"
        plot(rows, options.sweep, options.plot or images / f"score-residuals-{options.sweep}.svg")


def plot(rows: list[dict[str, Any]], against: str, path: Path) -> None:
    """Seconds against depth or length, each side with its floor."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 4), layout="constrained")
    styles = {"addnorm own": "o", "addnorm sum": "^", "addnorm sum, streaming": "s"}
    for color, (side, marker) in enumerate(styles.items()):
        mine = [row for row in rows if row["side"] == side]
        places = [row[against] for row in mine]
        axis.plot(places, [row["seconds"] for row in mine], marker + "-", color=f"C{color}", label=side)
        if side != "addnorm sum":  # its products are those of own
            floors = [row["floor_seconds"] for row in mine]
            axis.plot(places, floors, ":", color=f"C{color}", label=f"{side}: products alone")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(sorted({row[against] for row in rows}), labels=[str(x) for x in sorted({r[against] for r in rows})])
    other = "8 layers" if against == "length" else "length 1024"
    axis.set(xlabel=against, ylabel="seconds per step", title=f"Forward and backward, width 512, {other}")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.savefig(path)


def fits(side: str, length: int, depth: int) -> bool:
    """True if a side has room: x-transformers holds about five matrices per layer and head."""
    return side != "x-transformers residual_attn" or 4.5 * depth * HEADS * length * length * 4 < 20 * 2**30


if __name__ == "__main__":
    main()
