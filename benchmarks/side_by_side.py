"""False claims and power of `addnorm.rank` beside scipy, autorank, rliable and deep-significance, on the same tables.

    python -m venv build/side && build/side/bin/pip install -e . 'pandas<3' autorank rliable deepsig
    nice build/side/bin/python benchmarks/side_by_side.py [TABLES] [--out build/side_by_side.json]

A package that is not installed is left out, and said. Each is asked what it offers for "which variants differ from the
reference":

    addnorm                 verdicts with unpaired or paired seeds
    scipy, t                an uncorrected t test per variant (paired where seeds are shared), as most people do it
    scipy, Holm             the same with Holm's correction
    autorank                its omnibus test, then its post-hoc test of each variant against the reference
    rliable                 95 % bootstrap interval of the mean difference from the reference, per variant
    deepsig                 almost stochastic order, eps_min < 0.2 with its Bonferroni correction, in either direction

*False claims*: share of tables without any difference in which a variant is called better or worse. *Power*: share of tables in
which the one variant that is better by two or three standard deviations of a run is called better. In uneven tables the last
variant is three times as noisy, and is not the better one. Every package sees the same tables, the slow ones fewer of them.

Counts are written after every 20 tables, and a second call goes on from there: the file is read first. With more TABLES, tables
are added. rliable's bootstrap (arch 7.2) cannot be imported beside pandas 3. One core needs an hour for 400, most of it for
deepsig.
"""

import argparse
import contextlib
import io
import json
import logging
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
SHARE_OF_TABLES = {"autorank": 0.25, "rliable": 0.25, "deepsig": 0.1}
"""Of slow packages."""
MOST_VARIANTS = {"deepsig": 5}
"""Of packages that take seconds for each pair."""
SD = 0.01
EFFECTS = (2.0, 3.0)
"""By which one variant is better, in standard deviations of a run."""
BATCH = 20


@dataclass(frozen=True)
class Setting:
    variants: int
    seeds: int
    shared: bool
    """Whether seed s of all variants has a common effect, twice as large as the noise."""
    uneven: bool = False

    @property
    def name(self) -> str:
        """As printed."""
        seeds = f"{self.seeds} {'common' if self.shared else 'other'} seeds"
        return f"{self.variants} variants, {seeds}{', one three times as noisy' if self.uneven else ''}"

    def table(self, number: int) -> np.ndarray:
        """Losses without a difference, shape variant × seed."""
        rng = np.random.default_rng([self.variants, self.seeds, self.shared, self.uneven, number])
        noise = SD * rng.normal(size=(self.variants, self.seeds))
        if self.uneven:
            noise[-1] *= 3
        return noise + (2 * SD * rng.normal(size=self.seeds) if self.shared else 0.0)


SETTINGS = (
    Setting(2, 3, True),
    Setting(2, 3, False),
    Setting(2, 10, True),
    Setting(5, 5, True),
    Setting(5, 5, False),
    Setting(5, 5, True, uneven=True),
    Setting(5, 5, False, uneven=True),
    Setting(13, 3, True),
    Setting(13, 5, False),
)


def batch(method: Callable[..., Claims], setting: Setting, numbers: range) -> list[int]:
    """Tables with a false claim, and those with a right one for each effect."""
    counts = [0] * (1 + len(EFFECTS))
    for number in numbers:
        losses = setting.table(number)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            counts[0] += any(method(losses, shared=setting.shared))
            for place, effect in enumerate(EFFECTS, start=1):
                better = losses.copy()
                better[1] -= effect * SD
                counts[place] += int(method(better, shared=setting.shared)[0])
    return counts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="?", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path("build/side_by_side.json"))
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    done: dict[str, dict[str, list[int]]] = json.loads(given.out.read_text()) if given.out.exists() else {}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for name, method in METHODS.items():
        for setting in SETTINGS:
            if setting.seeds < FEWEST_SEEDS.get(name, 0) or setting.variants > MOST_VARIANTS.get(
                name, setting.variants
            ):
                continue
            tables = int(given.tables * SHARE_OF_TABLES.get(name, 1.0))
            entry = done.setdefault(setting.name, {}).setdefault(name, [0] * (2 + len(EFFECTS)))
            try:
                for first in range(entry[0], tables, BATCH):
                    numbers = range(first, min(first + BATCH, tables))
                    counts = batch(method, setting, numbers)
                    entry[:] = [numbers.stop, *(a + b for a, b in zip(entry[1:], counts, strict=True))]
                    part = given.out.with_suffix(".part")
                    part.write_text(json.dumps(done, indent=1))
                    os.replace(part, given.out)
            except ImportError as error:
                print(f"{name}: not installed ({error.name})", flush=True)
                break
    print(f"false claims; power at {' and '.join(f'{effect:g}' for effect in EFFECTS)} sd, in per cent (tables)")
    for setting in SETTINGS:
        print(setting.name)
        for name in METHODS:
            tables, *counts = done[setting.name].get(name, [0])
            if setting.seeds < FEWEST_SEEDS.get(name, 0):
                print(f"  {name}: refuses fewer than {FEWEST_SEEDS[name]} runs of each")
            elif tables:
                false, *right = (100 * count / tables for count in counts)
                print(f"  {name}: {false:.1f}; {' and '.join(f'{power:.0f}' for power in right)} ({tables})")


if __name__ == "__main__":
    main()
