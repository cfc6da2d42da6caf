"""Tokens per second of two training processes of one thread each on two cores, against one alone."""

import argparse
import multiprocessing
import statistics
import time

SIZES = {"vocab": 256, "width": 64, "depth": 8, "heads": 4, "kv_heads": 2, "hidden": 128, "max_seq": 128}
BATCH, SEQ = 8, 128


def train(seconds: float, begin: float) -> float:
    """Tokens per second of one process that trains from `begin` on, by the wall clock."""
    import torch
    from torch.nn import functional as F

    import addnorm

    torch.set_num_threads(1)
    model = addnorm.preset("base", **SIZES).build().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tokens = torch.randint(SIZES["vocab"], (BATCH, SEQ + 1))

    def step() -> None:
        F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    time.sleep(max(0.0, begin - time.time()))
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        step()
        steps += 1
    return steps * BATCH * SEQ / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    one, two = [], []
    for _ in range(options.rounds):
        for workers, found in ((1, one), (2, two)):
            with context.Pool(workers) as pool:
                begin = time.time() + 8.0
                found.append(sum(pool.starmap(train, [(options.seconds, begin)] * workers)))
    ratios = [b / a for a, b in zip(one, two, strict=True)]
    print("| workers | tokens/s (median) |\n|---|---|")
    print(f"| 1 x 1 thread | {statistics.median(one):,.0f} |\n| 2 x 1 thread | {statistics.median(two):,.0f} |")
    print(f"\nratio: {statistics.median(ratios):.2f} (rounds: {', '.join(f'{r:.2f}' for r in ratios)})")


if __name__ == "__main__":
    main()
