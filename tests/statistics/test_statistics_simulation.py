"""Whether the stated error rates hold: the ranking's own code on data whose truth is known.

Eighteen variants, three of them references, a seed effect three times the noise, unless a scenario says otherwise. Each rate is
held to its bound by the upper end of a one-sided 99.9 % Clopper-Pearson interval: a test passes only if the simulation excludes
a rate above the bound. With 2000 tables that asks for at most 70 false families at 5 % and 160 at 10 %. Every run of the suite
simulates a few scenarios; `make soak` all of them, with the intervals.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from scipy.stats import beta

from addnorm.statistics.multiple_testing import end_at_zero, equivalence_p, holm, simultaneous_intervals
from addnorm.statistics.pairs.paired_tests import PairedTests, paired_tests
from sampled import sampled

VARIANTS, REFERENCES, TABLES, SIGMA, MARGIN, ALPHA = 18, 3, 2000, 0.002, 0.005, 0.05
EVEN = np.ones(VARIANTS)
WIDE = np.geomspace(0.25, 4, VARIANTS)


def last(*times: float, variants: int = VARIANTS) -> np.ndarray:
    """Noise of each variant in sigmas: the last ones have these, the others 1."""
    return np.concatenate([np.ones(variants - len(times)), times])


UNEVEN = {
    "16 to 1, references quietest": WIDE,
    "16 to 1, references noisiest": WIDE[::-1],
    "16 to 1, shuffled": np.random.default_rng(1).permutation(WIDE),
    "one variant 5 times": last(5),
    "one variant 10 times": last(10),
    "one variant 100 times": last(100),
    "two variants 5 times": last(5, 5),
    "three variants 5 times": last(5, 5, 5),
    "10, 5, 3 and 2 times": last(10, 5, 3, 2),
    "half 5 times": np.where(np.arange(VARIANTS) % 2 == 1, 5.0, 1.0),
}
UNEVEN_IN_SUITE = {"one variant 10 times", "three variants 5 times", "16 to 1, shuffled"}
NOISY_REFERENCES = {
    "one 2 times": (2.0, 1.0, 1.0),
    "one 3 times": (3.0, 1.0, 1.0),
    "one 4 times": (4.0, 1.0, 1.0),
    "one 10 times": (10.0, 1.0, 1.0),
    "two 3 times": (3.0, 3.0, 1.0),
    "all 1.5 times": (1.5, 1.5, 1.5),
    "all 2 times": (2.0, 2.0, 2.0),
    "all 3 times": (3.0, 3.0, 3.0),
    "4, 2 and 1 times": (4.0, 2.0, 1.0),
    "the only one 2 times": (2.0,),
    "the only one 2.5 times": (2.5,),
    "the only one 3 times": (3.0,),
    "the only one 4 times": (4.0,),
}
NOISY_REFERENCES_IN_SUITE = {"all 3 times", "the only one 2.5 times"}
"""Every comparison shares the noise of a reference."""

soak = pytest.mark.soak
Draw = Callable[[np.random.Generator, tuple[int, int, int]], np.ndarray]
"""Residuals of tables × variants × seeds, in sigmas."""


def mostly_soaked(names: dict[str, object] | list[str], suite: set[str]) -> list[object]:
    """All names, of which every run of the suite takes some."""
    return [name if name in suite else pytest.param(name, marks=soak) for name in names]


def pairs_with(references: int, variants: int = VARIANTS) -> np.ndarray:
    """Every pair that one of the first variants takes part in."""
    return np.array([(a, b) for a in range(variants) for b in range(a + 1, variants) if a < references])


def normal(rng: np.random.Generator, shape: tuple[int, int, int], spread: np.ndarray) -> np.ndarray:
    return spread[:, None] * rng.normal(size=shape)


def simulate(
    seeds: int,
    effect: np.ndarray,
    draw: Draw,
    *,
    references: int = REFERENCES,
    tables: int = TABLES,
    missing: tuple[tuple[int, int], ...] = (),
) -> tuple[PairedTests, np.ndarray]:
    """Tests on many tables, and the true difference of every pair. Effects and residuals count sigmas."""
    rng = np.random.default_rng(seeds)
    shape = (tables, len(effect), seeds)
    shared = 3 * rng.normal(size=(tables, 1, seeds))
    values = 2.5 + SIGMA * (effect[:, None] + shared + draw(rng, shape))
    present = np.ones(shape[1:], bool)
    for cell in missing:
        present[cell] = False
    pairs = pairs_with(references, len(effect))
    tests = paired_tests(values, present, pairs, np.arange(references))
    return tests, SIGMA * (effect[pairs[:, 0]] - effect[pairs[:, 1]])


def spread_of(
    seeds: int, spread: np.ndarray, effect: np.ndarray, *, references: int = REFERENCES, tables: int = TABLES
) -> tuple[PairedTests, np.ndarray]:
    return simulate(seeds, effect, partial(normal, spread=spread), references=references, tables=tables)


def at_most(happened: np.ndarray) -> float:
    """The largest rate that 99.9 % confidence leaves."""
    count = int(happened.sum())
    return float(beta.ppf(0.999, count + 1, happened.size - count))


def claimed(tests: PairedTests) -> np.ndarray:
    return np.where(holm(tests.p_value, len(tests.count)) <= ALPHA, np.sign(tests.difference), 0.0)


def false_claims(tests: PairedTests, true: np.ndarray) -> np.ndarray:
    found = claimed(tests)
    wrong = (found != 0) & (found != np.sign(true))
    equivalent = 2 * len(true) * equivalence_p(tests, margin=MARGIN) < ALPHA
    return (wrong | (equivalent & (np.abs(true) >= MARGIN))).any(axis=-1)


def missed_by_an_interval(tests: PairedTests, true: np.ndarray) -> np.ndarray:
    interval = end_at_zero(simultaneous_intervals(tests, confidence=1 - ALPHA, family=len(true)), claimed(tests))
    return ((interval[..., 0] > true) | (interval[..., 1] < true)).any(axis=-1)


def effects(size: float) -> dict[str, np.ndarray]:
    """Where the true differences sit: all variants, one variant, or every other one and with it two references."""
    if size == 0:
        return {"none": np.zeros(VARIANTS)}
    many, one, mixed = np.zeros(VARIANTS), np.zeros(VARIANTS), np.zeros(VARIANTS)
    many[REFERENCES:] = size
    one[REFERENCES] = size
    mixed[::2] = -size
    return {"many": many, "one": one, "mixed": mixed}


@pytest.mark.parametrize("seeds", sampled(2, [3, 5]))
@pytest.mark.parametrize("size", [0, pytest.param(1, marks=soak), pytest.param(2, marks=soak), 3])
def test_even_noise_gives_at_most_five_per_cent_false_families(seeds: int, size: int) -> None:
    for effect in effects(size).values():
        tests, true = spread_of(seeds, EVEN, effect)
        assert at_most(false_claims(tests, true)) < 0.05
        assert at_most(missed_by_an_interval(tests, true)) < 0.05


@pytest.mark.parametrize(
    ("variants", "seeds"),
    [(3, 3), pytest.param(3, 5, marks=soak), *(pytest.param(v, s, marks=soak) for v in (4, 5, 6) for s in (3, 5))],
)
def test_even_noise_among_few_variants_gives_at_most_five_per_cent(variants: int, seeds: int) -> None:
    """Three equally noisy variants come nearest to the bound: the two that lie closest by chance may be retained."""
    for references in (1, 2):
        tests, true = spread_of(seeds, np.ones(variants), np.zeros(variants), references=references, tables=50_000)
        assert at_most(false_claims(tests, true)) < 0.05


@pytest.mark.parametrize("seeds", sampled(2, [3, 5]))
@pytest.mark.parametrize("name", mostly_soaked(list(UNEVEN), UNEVEN_IN_SUITE))
def test_very_uneven_noise_gives_at_most_ten_per_cent(seeds: int, name: str) -> None:
    # Two variants of five times the noise come nearest to the bound, with 9.1 % at three seeds.
    tables = TABLES if name in UNEVEN_IN_SUITE else 8 * TABLES
    tests, true = spread_of(seeds, UNEVEN[name], np.zeros(VARIANTS), tables=tables)
    assert at_most(false_claims(tests, true)) < 0.10


@pytest.mark.parametrize("seeds", sampled(2, [3, 5]))
@pytest.mark.parametrize("name", mostly_soaked(list(UNEVEN), {"one variant 10 times"}))
def test_an_interval_of_uneven_noise_misses_only_where_a_claim_is_false(seeds: int, name: str) -> None:
    tests, true = spread_of(seeds, UNEVEN[name], np.zeros(VARIANTS), tables=TABLES // 4)
    assert not (missed_by_an_interval(tests, true) & ~false_claims(tests, true)).any()


@pytest.mark.parametrize("seeds", [3, pytest.param(4, marks=soak), 5])
@pytest.mark.parametrize("name", mostly_soaked(list(NOISY_REFERENCES), NOISY_REFERENCES_IN_SUITE))
def test_noisy_references_give_at_most_ten_per_cent(seeds: int, name: str) -> None:
    noisy = NOISY_REFERENCES[name]
    spread = np.concatenate([noisy, np.ones(VARIANTS - len(noisy))])
    # More tables tell a rate of 8 % from one of 10 %: two of three references with three times the noise have 8.7 % at three
    # seeds, the only one with 2.5 times the noise 8.3 %.
    tables = (3 if len(noisy) == 1 else 1) * TABLES if name in NOISY_REFERENCES_IN_SUITE else 8 * TABLES
    tests, true = spread_of(seeds, spread, np.zeros(VARIANTS), references=len(noisy), tables=tables)
    assert at_most(false_claims(tests, true)) < 0.10


def heavy_tails(rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    return rng.standard_t(5, size=shape) / np.sqrt(5 / 3)


def lognormal(rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """Every variant of every table has a noise of its own."""
    return np.exp(0.7 * rng.normal(size=(*shape[:2], 1))) * rng.normal(size=shape)


def grows_with_loss(rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    return (1 + 0.5 * np.arange(shape[1]))[:, None] * rng.normal(size=shape)


def interaction(rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """Two kinds of variants, each with a seed effect of its own besides the common one."""
    kinds = rng.normal(size=(shape[0], 2, shape[2]))
    return kinds[:, np.arange(shape[1]) % 2] + rng.normal(size=shape)


HOLD_OUT: dict[str, tuple[Draw, int, int, tuple[tuple[int, int], ...]]] = {
    "heavy tails": (heavy_tails, 18, 3, ()),
    "heavy tails, 4 variants": (heavy_tails, 4, 1, ()),
    "noise of each variant at random": (lognormal, 18, 3, ()),
    "noise of each variant at random, 6 variants": (lognormal, 6, 1, ()),
    "noise grows with the loss": (grows_with_loss, 10, 2, ()),
    "seed effects of two kinds of variants": (interaction, 12, 2, ()),
    "missing runs, one variant 10 times": (partial(normal, spread=last(10)), 18, 3, ((4, 0), (9, 1), (17, 2))),
    "missing runs of few, one 10 times": (partial(normal, spread=last(10, variants=5)), 5, 1, ((1, 0), (4, 1))),
    "3 variants, one 10 times": (partial(normal, spread=last(10, variants=3)), 3, 1, ()),
    "4 variants, one 5 times": (partial(normal, spread=last(5, variants=4)), 4, 1, ()),
    "5 variants, two 10 times": (partial(normal, spread=last(10, 10, variants=5)), 5, 1, ()),
    "6 variants, two 5 times": (partial(normal, spread=last(5, 5, variants=6)), 6, 1, ()),
    "8 variants, three 10 times": (partial(normal, spread=last(10, 10, 10, variants=8)), 8, 1, ()),
    "one reference, three variants 5 times": (partial(normal, spread=last(5, 5, 5)), 18, 1, ()),
}
"""Residuals, variants, references, missing cells. Those of many variants were not used to choose the method."""


@pytest.mark.parametrize("seeds", [4, pytest.param(3, marks=soak), pytest.param(5, marks=soak)])
@pytest.mark.parametrize(
    "name",
    mostly_soaked(list(HOLD_OUT), {"seed effects of two kinds of variants", "missing runs of few, one 10 times"}),
)
def test_other_noise_gives_at_most_ten_per_cent(seeds: int, name: str) -> None:
    draw, variants, references, missing = HOLD_OUT[name]
    tables = 4 * TABLES if variants > 8 else 20 * TABLES if seeds == 3 else TABLES
    tests, true = simulate(seeds, np.zeros(variants), draw, references=references, tables=tables, missing=missing)
    assert at_most(false_claims(tests, true)) < 0.10


@pytest.mark.parametrize("seeds", sampled(2, [3, 5]))
def test_the_floor_of_noisy_references_never_makes_a_claim_easier(seeds: int) -> None:
    tests, _ = spread_of(seeds, WIDE[::-1], np.zeros(VARIANTS), tables=500)
    assert tests.floor.noisy[:, :REFERENCES].any()
    assert not tests.floor.noisy[:, REFERENCES:].any()
    assert not (tests.floor.noisy & tests.set_apart).any()
    assert (tests.standard_error**2 * seeds >= tests.floor.variance * (1 - 1e-12)).all()
    pairs = pairs_with(REFERENCES)
    retained = ~tests.set_apart[:, pairs].any(axis=-1)
    most = np.minimum(tests.noise.df[:, None], np.maximum(tests.floor.df, 1))
    assert (tests.df <= most)[retained].all()
    assert (tests.df == seeds - 1)[~retained].all()


def test_references_of_equal_noise_are_found_noisy_as_often_as_the_levels_state() -> None:
    """Three alone at 5 % each, and all together at 10 %: 25 % at most, and less because they overlap."""
    tests, _ = spread_of(3, EVEN, np.zeros(VARIANTS))
    rate = tests.floor.noisy.any(axis=-1).mean()
    assert 0.10 < rate < 0.25


def test_equal_variants_are_set_apart_as_often_as_the_level_states() -> None:
    """10 % (1 - 2 / 18) for the first, and few more for those after it."""
    tests, _ = spread_of(3, EVEN, np.zeros(VARIANTS))
    rate = tests.set_apart.any(axis=-1).mean()
    assert 0.07 < rate < 0.11


@pytest.mark.parametrize(("seeds", "low", "high"), [(3, 0.42, 0.49), (5, 0.83, 0.91)])
def test_power_for_three_sigma(seeds: int, low: float, high: float) -> None:
    """Share of the 45 true differences of 3 sigma that are claimed."""
    tests, true = spread_of(seeds, EVEN, effects(3)["many"])
    power = float(np.mean(claimed(tests)[:, true != 0] == np.sign(true[true != 0])))
    assert low < power < high


@pytest.mark.parametrize("times", [10, 100])
@pytest.mark.parametrize("seeds", sampled(2, [3, 5]))
def test_a_noisy_variant_costs_the_others_little_power(seeds: int, times: int) -> None:
    """The same tables with and without an eighteenth variant: the claims on the others, and their standard errors."""
    rng = np.random.default_rng(seeds)
    effect = np.concatenate([np.zeros(REFERENCES), np.full(14, 3.0), [0.0]])
    noise = last(times)[:, None] * rng.normal(size=(TABLES, VARIANTS, seeds))
    values = 2.5 + SIGMA * (effect[:, None] + 3 * rng.normal(size=(TABLES, 1, seeds)) + noise)
    power, errors = [], []
    for variants in (17, 18):
        pairs = pairs_with(REFERENCES, variants)
        tests = paired_tests(values[:, :variants], np.ones((variants, seeds), bool), pairs, np.arange(REFERENCES))
        others = (pairs < 17).all(axis=-1)
        true = np.sign(effect[pairs[:, 0]] - effect[pairs[:, 1]])
        power.append((claimed(tests) == true)[:, others & (true != 0)].mean())
        errors.append(tests.standard_error[:, others])
    assert power[0] - power[1] < 0.10
    assert np.median(errors[1] / errors[0]) == pytest.approx(1, abs=0.05)


def test_the_bound_notices_uncorrected_tests() -> None:
    """The check itself: plain 5 % tests on the same tables must fail it."""
    tests, _ = spread_of(3, EVEN, np.zeros(VARIANTS))
    plain = tests.p_value <= 0.05
    assert at_most(plain.any(axis=-1)) > 0.4


def test_the_bound_notices_the_missing_doubt() -> None:
    """Three variants of five times the noise: without the doubt about those that escape notice, the rate is far above 10 %."""
    rng = np.random.default_rng(3)
    values = 2.5 + SIGMA * last(5, 5, 5)[:, None] * rng.normal(size=(TABLES, VARIANTS, 3))
    pairs = pairs_with(REFERENCES)
    tests = paired_tests(values, np.ones((VARIANTS, 3), bool), pairs, np.arange(REFERENCES), share=0.0)
    assert false_claims(tests, np.zeros(len(pairs))).mean() > 0.13


def test_adding_seeds_after_a_look_costs_what_the_guide_says() -> None:
    """Look at 3 seeds, add 2 where nothing is claimed, look again: more false families than at 5 seeds alone."""
    rng = np.random.default_rng(11)
    values = 2.5 + SIGMA * rng.normal(size=(2 * TABLES, VARIANTS, 5))
    pairs = pairs_with(REFERENCES)
    looks = [
        paired_tests(values[..., :seeds], np.ones((VARIANTS, seeds), bool), pairs, np.arange(REFERENCES))
        for seeds in (3, 5)
    ]
    first, second = (false_claims(look, np.zeros(len(pairs))) for look in looks)
    assert (first | second).mean() > 1.3 * second.mean()
