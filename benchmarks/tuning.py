"""False claims of a comparison of tuned variants, simulated: chosen on the compared seeds, and on seeds of their own.

    python benchmarks/tuning.py                 # about a minute on one core
    python benchmarks/tuning.py --tables 200

Variants without any difference are tuned over 5 rates. The loss of a run is a mean, its seed's effect (common to all variants
and rates), what its rate costs, and noise of standard deviation 1 that every run draws for itself. A table is judged

- at one rate, fixed beforehand, on n seeds;
- at the best of 5 rates by the mean over n seeds, on the same n seeds;
- at the best of 5 rates by the mean over tuning seeds (`addnorm.statistics.tuning`), on n fresh seeds.

Verdicts are those of the code that ranks. docs/decisions/0049-tuned-comparisons.md has the table.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from addnorm.statistics import Result
from addnorm.statistics.multiple_testing import decide
from addnorm.statistics.tuning import tuning_outcome

RATES, TUNING_SEEDS = 5, (2, 5)
CONFIDENCE, MARGIN = 0.95, 1e-9


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Studies of one kind, without any difference between the variants at their best rates."""

    variants: int
    rates: np.ndarray
    """What each rate costs, in units of the noise."""
    fixed: int = 0
    """Number of first variants, the reference among them, that have the best rate and are not tuned."""
    last: float = 1.0
    """Noise of the last variant, in units of the others'."""


FLAT = np.zeros(RATES)
CURVED = 0.75 * (np.arange(RATES) - 2.0) ** 2
SCENARIOS = {
    "6 variants, rates alike": Scenario(variants=6, rates=FLAT),
    "6 variants, two best rates alike": Scenario(variants=6, rates=np.array([8.0, 3.0, 0.0, 0.0, 3.0])),
    "6 variants, one best rate": Scenario(variants=6, rates=CURVED),
    "18 variants, rates alike": Scenario(variants=18, rates=FLAT),
    "6 variants, rates alike, reference not tuned": Scenario(variants=6, rates=FLAT, fixed=1),
    "2 variants, rates alike, reference not tuned": Scenario(variants=2, rates=FLAT, fixed=1),
    "2 variants, rates alike, one 3 times as noisy": Scenario(variants=2, rates=FLAT, last=3.0),
    "6 variants, rates alike, one 3 times as noisy": Scenario(variants=6, rates=FLAT, last=3.0),
    "6 variants, one best rate, reference not tuned": Scenario(variants=6, rates=CURVED, fixed=1),
}


def losses(scenario: Scenario, rng: np.random.Generator, tables: int, seeds: int) -> np.ndarray:
    """Losses of every table, variant, rate and seed."""
    noise = rng.normal(size=(tables, scenario.variants, RATES, seeds))
    noise[:, -1] *= scenario.last
    return 3 * rng.normal(size=(tables, 1, 1, seeds)) + scenario.rates[:, None] + noise


def at(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The losses of every variant at its rate."""
    found: np.ndarray = np.take_along_axis(values, chosen[..., None, None], axis=2)[..., 0, :]
    return found


def best_on(values: np.ndarray, scenario: Scenario) -> np.ndarray:
    """The rate with the lowest mean loss of each tuned variant."""
    chosen = values.mean(axis=-1).argmin(axis=-1)
    for table in range(3):
        assert chosen[table].tolist() == chosen_by_the_code(values[table])
    chosen[:, : scenario.fixed] = int(scenario.rates.argmin())
    return chosen


def chosen_by_the_code(values: np.ndarray) -> list[int]:
    """The same for one table by `addnorm.statistics.tuning`, which takes too long for all of them."""
    names = {
        f"v{variant}": {f"v{variant}, rate {rate}": {"rate": float(rate)} for rate in range(RATES)}
        for variant in range(len(values))
    }
    results = [
        Result(variant=point, seed=seed, loss=float(loss))
        for variant, points in enumerate(names.values())
        for rate, point in enumerate(points)
        for seed, loss in enumerate(values[variant, rate])
    ]
    outcome = tuning_outcome(results, names, range(values.shape[-1]))
    return [int(str(of.chosen)[-1]) for of in outcome.variants]


@dataclass(frozen=True, kw_only=True)
class Claims:
    """Claims over many tables that some variant differs from the first."""

    false: int
    """Tables with a claim that is not true of the compared rates."""
    any: int
    """Tables with a claim at all; more than `false` where tuning missed a best rate, which makes a true difference."""
    bias: float
    """Mean difference in favour of the others beyond the true one, in units of the noise."""


def claims(values: np.ndarray, cost: np.ndarray) -> Claims:
    """Judge tables of losses, with what each variant's compared rate costs."""
    _, variants, seeds = values.shape
    pairs = np.array([(variant, 0) for variant in range(1, variants)])
    present, reference = np.ones((variants, seeds), bool), np.array([0])
    found = decide(values, present, pairs, reference, family=len(pairs), confidence=CONFIDENCE, margin=MARGIN)
    true = cost[:, 1:] - cost[:, :1]
    claimed = found.claimed != 0
    return Claims(
        false=int((claimed & (found.claimed != np.sign(true))).any(axis=-1).sum()),
        any=int(claimed.any(axis=-1).sum()),
        bias=float((true - found.tests.difference).mean()),
    )


def ways(scenario: Scenario, tables: int, seeds: int) -> Iterator[Claims]:
    """Claims at a fixed rate, at the best on the same seeds, and at the best on tuning seeds."""
    rng = np.random.default_rng(seeds)
    values = losses(scenario, rng, tables, seeds)
    best = np.full((tables, scenario.variants), int(scenario.rates.argmin()))
    tuned = (best_on(losses(scenario, rng, tables, number), scenario) for number in TUNING_SEEDS)
    for chosen in (best, best_on(values, scenario), *tuned):
        yield claims(at(values, chosen), scenario.rates[chosen])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=4000)
    tables = parser.parse_args().tables
    print(f"false claims (upper end of a 99.9 % interval); any claims; bias in sd of one run; {tables} tables each")
    print(
        "| study | seeds | one rate | best of 5, same seeds | fresh seeds, 2 for tuning | fresh seeds, 5 for tuning |"
    )
    print("|---|---|---|---|---|---|")
    for name, scenario in SCENARIOS.items():
        for seeds in (3, 5):
            cells = []
            for found in ways(scenario, tables, seeds):
                upper = beta.ppf(0.9995, found.false + 1, tables - found.false)
                rates = f"{100 * found.false / tables:.1f} ({100 * upper:.1f}); {100 * found.any / tables:.1f} %"
                cells.append(f"{rates}; {found.bias:+.2f}")
            print(f"| {name} | {seeds} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
