"""False claims of rankings by several metrics, against what is promised: `python benchmarks/several_metrics.py [TABLES]`.

Tables without any effect: a reference and four variants, three metrics that go together (correlation 0.5) or not at all, with
shared seeds. Counted are tables in which a verdict says better or worse. Promised: at most 5 % by the metric that decides; at
most 5 % by all metrics together where they share an error rate. What each metric by itself would do is shown beside it.
"""

import sys

import numpy as np

from addnorm.statistics import Result, rank

VARIANTS, METRICS = 5, 3
CASES = [(seeds, correlation) for seeds in (3, 5, 10) for correlation in (0.0, 0.5)]


def claims(values: np.ndarray, confidence: float) -> bool:
    """True if the table of one metric, values float[variant, seed], leads to a claim."""
    results = [
        Result(variant=f"v{variant}", seed=seed, loss=float(values[variant, seed]))
        for variant in range(values.shape[0])
        for seed in range(values.shape[1])
    ]
    ranking = rank(results, references=["v0"], confidence=confidence)
    return any(row.versus["v0"].verdict in ("better", "worse") for row in ranking.variants if row.variant != "v0")


def shares(seeds: int, correlation: float, tables: int) -> tuple[float, float, float]:
    """Shares of tables with a claim: of the first metric, of any one apart, of any one together."""
    random = np.random.default_rng(seeds * 100 + round(10 * correlation))
    counts = np.zeros(3)
    for _ in range(tables):
        common = random.normal(size=(1, VARIANTS, seeds))
        own = random.normal(size=(METRICS, VARIANTS, seeds))
        of_seeds = 3 * random.normal(size=(METRICS, 1, seeds))
        noise = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own
        values = 2.5 + 0.01 * (noise + of_seeds)
        apart = [claims(each, 0.95) for each in values]
        together = [claims(each, 1 - 0.05 / METRICS) for each in values]
        counts += apart[0], any(apart), any(together)
    first, one_apart, one_together = 100 * counts / tables
    return first, one_apart, one_together


def main(tables: int) -> None:
    print("| seeds, correlation of the metrics | the first decides | any of 3, apart | any of 3, together |")
    print("|---|---|---|---|")
    for seeds, correlation in CASES:
        first, apart, together = shares(seeds, correlation, tables)
        print(f"| {seeds}, {correlation:g} | {first:.1f} % | {apart:.1f} % | {together:.1f} % |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
