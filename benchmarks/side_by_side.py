"""False claims and power of `addnorm.rank` beside scipy, autorank, rliable and deep-significance, on the same tables.

    python -m venv build/side && build/side/bin/pip install -e . autorank rliable deepsig
    build/side/bin/python benchmarks/side_by_side.py [TABLES]

A package that is not installed is left out, and said. Each is asked what it offers for "which variants differ from the
reference":

    addnorm                 verdicts with unpaired or paired seeds
    scipy, t                an uncorrected t test per variant (paired where seeds are shared), as most people do it
    scipy, Holm             the same with Holm's correction
    autorank                its omnibus test, then its post-hoc test of each variant against the reference
    rliable                 95 % bootstrap interval of the mean difference from the reference, per variant
    deepsig                 almost stochastic order, eps_min < 0.2 with its Bonferroni correction, in either direction

*False claims*: share of tables without any difference in which a variant is called better or worse. *Power*: share of tables in
which the one variant that is better by two standard deviations of a run is called better.
"""

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable

import numpy as np
from scipy.stats import ttest_ind, ttest_rel

from addnorm.statistics import Result, rank

Claims = list[bool]
"""For each variant but the reference, whether it is called different from it."""


def of_addnorm(losses: np.ndarray, *, shared: bool) -> Claims:
    runs = [
        Result(variant=f"v{v}", seed=s if shared else s + 1000 * v, loss=2.5 + float(loss))
        for v, row in enumerate(losses)
        for s, loss in enumerate(row)
    ]
    ranking = rank(runs, references=["v0"], margin=1e-9)
    return [ranking[f"v{v}"].versus["v0"].verdict in ("better", "worse") for v in range(1, len(losses))]


def _p(losses: np.ndarray, *, shared: bool) -> np.ndarray:
    test = ttest_rel if shared else ttest_ind
    return np.array([test(row, losses[0]).pvalue for row in losses[1:]])


def of_t(losses: np.ndarray, *, shared: bool) -> Claims:
    return [bool(p < 0.05) for p in _p(losses, shared=shared)]


def of_holm(losses: np.ndarray, *, shared: bool) -> Claims:
    p = _p(losses, shared=shared)
    order = np.argsort(p)
    adjusted = np.maximum.accumulate(p[order] * (len(p) - np.arange(len(p))))
    claims = np.zeros(len(p), bool)
    claims[order] = adjusted < 0.05
    return [bool(each) for each in claims]


def of_autorank(losses: np.ndarray, *, shared: bool) -> Claims:
    import pandas as pd
    from autorank import autorank

    frame = pd.DataFrame({f"v{v}": row for v, row in enumerate(losses)})
    result = autorank(frame, alpha=0.05, order="ascending", approach="frequentist", verbose=False, random_state=0)
    if result.pvalue >= result.alpha:
        return [False] * (len(losses) - 1)
    if len(losses) == 2:
        return [True]
    if result.posthoc == "nemenyi":
        ranks = result.rankdf["meanrank"]
        return [abs(ranks[f"v{v}"] - ranks["v0"]) > result.cd for v in range(1, len(losses))]
    # Tukey's test: autorank gives intervals of the means, and calls apart what does not overlap.
    ends = result.rankdf[["ci_lower", "ci_upper"]]
    return [
        bool(
            ends.loc[f"v{v}", "ci_lower"] > ends.loc["v0", "ci_upper"]
            or ends.loc[f"v{v}", "ci_upper"] < ends.loc["v0", "ci_lower"]
        )
        for v in range(1, len(losses))
    ]


def of_rliable(losses: np.ndarray, *, shared: bool) -> Claims:
    from rliable import library, metrics

    claims = []
    for row in losses[1:]:
        if shared:
            scores = {"d": (row - losses[0])[:, None]}
            _, ends = library.get_interval_estimates(scores, lambda x: np.array([metrics.aggregate_mean(x)]), reps=500)
        else:
            scores = {"d": (row[:, None], losses[0][:, None])}
            difference = lambda a, b: np.array([a.mean() - b.mean()])  # noqa: E731
            _, ends = library.get_interval_estimates(scores, difference, reps=500)
        low, high = ends["d"][:, 0]
        claims.append(bool(low > 0 or high < 0))
    return claims


def of_deepsig(losses: np.ndarray, *, shared: bool) -> Claims:
    from deepsig import aso

    number = len(losses) - 1
    return [
        min(
            aso(a, b, num_comparisons=number, num_bootstrap_iterations=200, show_progress=False, num_jobs=1)
            for a, b in ((-row, -losses[0]), (-losses[0], -row))
        )
        < 0.2
        for row in losses[1:]
    ]


FEWEST_SEEDS = {"autorank": 5}
"""Packages that refuse fewer runs."""
METHODS: dict[str, Callable[..., Claims]] = {
    "addnorm": of_addnorm,
    "scipy, t": of_t,
    "scipy, Holm": of_holm,
    "autorank": of_autorank,
    "rliable": of_rliable,
    "deepsig": of_deepsig,
}


def rates(
    method: Callable[..., Claims], variants: int, seeds: int, tables: int, *, shared: bool
) -> tuple[float, float]:
    """False claims and power."""
    rng = np.random.default_rng([variants, seeds, shared])
    false = right = 0
    for _ in range(tables):
        losses = 0.01 * rng.normal(size=(variants, seeds)) + (0.02 * rng.normal(size=seeds) if shared else 0.0)
        better = losses.copy()
        better[1] -= 0.02
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            false += any(method(losses, shared=shared))
            right += method(better, shared=shared)[0]
    return false / tables, right / tables


def main() -> None:
    tables = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    logging.disable(logging.CRITICAL)
    for variants, seeds, shared in ((2, 3, True), (5, 5, True), (2, 5, False), (5, 5, False), (13, 3, True)):
        print(f"{variants} variants, {seeds} seeds{', the same' if shared else ', others'}: false claims, power")
        for name, method in METHODS.items():
            if seeds < FEWEST_SEEDS.get(name, 0):
                print(f"  {name}: refuses fewer than {FEWEST_SEEDS[name]} runs of each")
                continue
            try:
                false, power = rates(method, variants, seeds, tables, shared=shared)
            except ImportError as error:
                print(f"  {name}: not installed ({error.name})")
                continue
            print(f"  {name}: {100 * false:.1f} %, {100 * power:.1f} %", flush=True)


if __name__ == "__main__":
    main()
