"""Methods for noise that differs between variants: false claims and power of each, on simulated studies.

    python benchmarks/noise_methods.py                      # all scenarios, 3 and 5 seeds; about 5 minutes on one core
    python benchmarks/noise_methods.py --tables 400 --seeds 3

`shared`: no variant is set apart, and one noisy variant widens every comparison. `no doubt`: noisy variants are set apart, and
the rest is taken to be even. `in use`: the method of `addnorm.statistics.noisy_variants`. Holm's procedure at 5 % decides;
docs/decisions/0030-noisy-variants.md explains the choice. `without`: power of `in use` in the same tables without the noisy
variants, over the pairs of quiet ones, as the power is everywhere.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import beta

from addnorm.statistics.multiple_testing import holm
from addnorm.statistics.pairs.paired_tests import paired_tests

SIGMA = 0.002
METHODS = {"shared": {"level": 0.0}, "no doubt": {"share": 0.0}, "in use": {}}

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.normal(size=shape)


def heavy_tails(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_t(5, size=shape) / np.sqrt(5 / 3)


def lognormal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Every variant of every table has a noise of its own."""
    return np.exp(0.7 * rng.normal(size=(*shape[:2], 1))) * rng.normal(size=shape)


def two_kinds(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Two kinds of variants, each with a seed effect of its own besides the common one."""
    return rng.normal(size=(shape[0], 2, shape[2]))[:, np.arange(shape[1]) % 2] + rng.normal(size=shape)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Studies of one kind."""

    spread: np.ndarray
    """Standard deviation of each variant in units of SIGMA; the first ones are the references."""
    references: int = 3
    draw: Draw = normal
    missing: list[tuple[int, int]] = field(default_factory=list)


def noisy(*levels: float, variants: int = 18, first: bool = False) -> np.ndarray:
    ones = np.ones(variants - len(levels))
    return np.concatenate([levels, ones] if first else [ones, levels])


def scenarios() -> dict[str, Scenario]:
    """The scenarios of docs/guide/ranking.md, and others."""
    wide = np.geomspace(0.25, 4, 18)
    found = {
        "equal": Scenario(spread=noisy()),
        "one variant 5 times": Scenario(spread=noisy(5)),
        "one variant 10 times": Scenario(spread=noisy(10)),
        "one variant 100 times": Scenario(spread=noisy(100)),
        "two variants 5 times": Scenario(spread=noisy(5, 5)),
        "three variants 5 times": Scenario(spread=noisy(5, 5, 5)),
        "16 to 1, shuffled": Scenario(spread=np.random.default_rng(1).permutation(wide)),
        "16 to 1, references noisiest": Scenario(spread=wide[::-1]),
        "all references 2 times": Scenario(spread=noisy(2, 2, 2, first=True)),
        "all references 3 times": Scenario(spread=noisy(3, 3, 3, first=True)),
        "one of three references 3 times": Scenario(spread=noisy(3, first=True)),
        "one of three references 10 times": Scenario(spread=noisy(10, first=True)),
        "one reference, 2.5 times": Scenario(spread=noisy(2.5, first=True), references=1),
        "one reference, three variants 5 times": Scenario(spread=noisy(5, 5, 5), references=1),
        "noise of each variant at random (lognormal, 0.7)": Scenario(spread=noisy(), draw=lognormal),
        "heavy tails (t5)": Scenario(spread=noisy(), draw=heavy_tails),
        "two kinds of variants, seed effects of their own": Scenario(spread=noisy(), draw=two_kinds),
        "noise grows by half a sigma per variant": Scenario(spread=1 + 0.5 * np.arange(10), references=2),
        "three runs missing, one variant 10 times": Scenario(spread=noisy(10), missing=[(4, 0), (9, 1), (17, 2)]),
        "3 variants, equal": Scenario(spread=noisy(variants=3), references=1),
        "3 variants, one 10 times": Scenario(spread=noisy(10, variants=3), references=1),
        "4 variants, one 10 times": Scenario(spread=noisy(10, variants=4), references=1),
        "5 variants, two 10 times": Scenario(spread=noisy(10, 10, variants=5), references=1),
        "6 variants, one 10 times": Scenario(spread=noisy(10, variants=6), references=1),
        "8 variants, three 10 times": Scenario(spread=noisy(10, 10, 10, variants=8), references=1),
    }
    return found


def claims(
    scenario: Scenario, variants: np.ndarray, effect: float, seeds: int, tables: int, **method: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Claimed and true direction of every pair of some variants, and which pairs are quiet."""
    rng = np.random.default_rng([int(10 * effect), seeds])
    shape = (tables, scenario.spread.size, seeds)
    level = np.where(np.arange(shape[1]) < scenario.references, 0.0, effect)
    values = level[:, None] + 3 * rng.normal(size=(tables, 1, seeds))
    values = 2.5 + SIGMA * (values + scenario.spread[:, None] * scenario.draw(rng, shape))
    present = np.ones(shape[1:], bool)
    for cell in scenario.missing:
        present[cell] = False
    kept = np.flatnonzero(variants)
    pairs = np.array(
        [(a, b) for a in range(kept.size) for b in range(a + 1, kept.size) if kept[a] < scenario.references]
    )
    references = np.flatnonzero(kept < scenario.references)
    tests = paired_tests(values[:, kept], present[kept], pairs, references, **method)
    claimed = np.where(holm(tests.p_value, len(pairs)) <= 0.05, np.sign(tests.difference), 0.0)
    ends = kept[pairs]
    return claimed, np.sign(level[ends[:, 0]] - level[ends[:, 1]]), (scenario.spread[ends] == 1).all(axis=-1)


def false_rate(scenario: Scenario, seeds: int, tables: int, method: dict[str, float]) -> tuple[float, float]:
    """Share of tables with a false claim, and the upper end of its one-sided 99.9 % Clopper-Pearson interval."""
    claimed, _, _ = claims(scenario, np.ones(scenario.spread.size, bool), 0.0, seeds, tables, **method)
    count = int((claimed != 0).any(axis=-1).sum())
    return count / tables, float(beta.ppf(0.999, count + 1, tables - count))


def power(scenario: Scenario, variants: np.ndarray, seeds: int, tables: int, method: dict[str, float]) -> float:
    """Share of the true differences of 3 sigma between quiet variants that are claimed."""
    claimed, true, quiet = claims(scenario, variants, 3.0, seeds, tables, **method)
    counted = quiet & (true != 0)
    return float((claimed == true)[:, counted].mean()) if counted.any() else np.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=4000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 5])
    options = parser.parse_args()
    for seeds in options.seeds:
        print(f"\n{seeds} seeds: false claims (upper end at 99.9 %) / power for 3 sigma\n")
        print(f"| scenario | {' | '.join(METHODS)} | without |\n|---|{'---|' * (len(METHODS) + 1)}")
        for name, scenario in scenarios().items():
            few = scenario.spread.size < 10
            tables = 4 * options.tables if few else options.tables
            everything = np.ones(scenario.spread.size, bool)
            cells = []
            for method in METHODS.values():
                false, most = false_rate(scenario, seeds, tables, method)
                found = power(scenario, everything, seeds, tables // 8, method)
                cells.append(f"{100 * false:.1f} ({100 * most:.1f}) / {100 * found:.0f} %")
            quiet = scenario.spread == 1
            kept = quiet[: scenario.references].any() and quiet[scenario.references :].any() and not quiet.all()
            without = np.nan if not kept else power(scenario, quiet, seeds, tables // 8, METHODS["in use"])
            print(f"| {name} | {' | '.join(cells)} | {100 * without:.0f} % |", flush=True)


if __name__ == "__main__":
    main()
