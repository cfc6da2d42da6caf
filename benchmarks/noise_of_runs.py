"""Whether `addnorm noise` is right: coverage of its intervals, and power of `rank` at the differences that it prints.

    python benchmarks/noise_of_runs.py

The tests run the same functions with fewer tables.
"""

import sys

import numpy as np

from addnorm.statistics import Result, rank
from addnorm.statistics.run_noise import run_noise
from addnorm.statistics.smallest_difference import smallest_difference


def runs(losses: np.ndarray, *, shared: bool = True) -> list[Result]:
    """Losses of variant × seed as runs; each with a seed of its own if they are not shared."""
    return [
        Result(variant=f"v{v}", seed=s if shared else s + len(row) * v, loss=2.5 + float(loss))
        for v, row in enumerate(losses)
        for s, loss in enumerate(row)
    ]


def coverage(variants: int, seeds: int, seed_sd: float, tables: int, *, shared: bool = True) -> tuple[float, float]:
    """Shares of tables whose intervals hold the true sd of one run, and that of a run beside others of its seed."""
    rng = np.random.default_rng([variants, seeds, int(100 * seed_sd)])
    truth = 0.01 * np.hypot(1, seed_sd)
    one = paired = 0
    for _ in range(tables):
        effect = rng.normal(size=(1 if shared else variants, seeds)) * seed_sd
        noise = run_noise([("table", runs(0.01 * (rng.normal(size=(variants, seeds)) + effect), shared=shared))])
        one += noise.one_run.low <= truth <= noise.one_run.high
        if noise.paired is not None:
            paired += noise.paired.low <= 0.01 <= noise.paired.high
    return one / tables, paired / tables


def power(comparisons: int, seeds: int, tables: int, *, paired: bool) -> float:
    """Share of tables in which `rank` decides one variant that differs by the smallest difference; the others do not differ."""
    rng = np.random.default_rng([comparisons, seeds, paired])
    size = 0.01 * smallest_difference(seeds, comparisons, 0.95, paired=paired)
    decided = 0
    for _ in range(tables):
        losses = 0.01 * rng.normal(size=(comparisons + 1, seeds)) + (0.02 * rng.normal(size=seeds) if paired else 0.0)
        losses[1] += size
        ranking = rank(runs(losses, shared=paired), references=["v0"], margin=1e-9)
        decided += ranking["v1"].versus["v0"].verdict == "worse"
    return decided / tables


def main() -> None:
    tables = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    print(f"coverage of 95 % intervals, {tables} tables: one run, beside others of its seed")
    for variants, seeds, seed_sd in ((1, 10, 1.0), (2, 3, 1.0), (3, 5, 0.0), (3, 5, 1.0), (3, 5, 3.0), (13, 5, 1.0)):
        one, paired = coverage(variants, seeds, seed_sd, tables)
        print(
            f"{variants} variants, {seeds} seeds, effect of a seed {seed_sd:g}: {100 * one:.1f} %, {100 * paired:.1f} %"
        )
    print("power of rank at the smallest difference, planned for 80 %: same seeds, other seeds")
    for comparisons, seeds in ((1, 3), (1, 5), (1, 10), (4, 3), (4, 5), (4, 20), (12, 5), (12, 15)):
        rates = [power(comparisons, seeds, tables // 2, paired=paired) for paired in (True, False)]
        print(f"{comparisons} variants, {seeds} seeds: " + ", ".join(f"{100 * rate:.1f} %" for rate in rates))


if __name__ == "__main__":
    main()
