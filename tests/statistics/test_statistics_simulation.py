"""Whether the stated error rates hold: the ranking's own code on data whose truth is known.

Eighteen variants, three of them references, a seed effect three times the noise. Each rate is held to its bound by the
upper end of a one-sided 99.9 % Clopper-Pearson interval: the test passes only if the simulation excludes a rate above
the bound. With 4000 tables that asks for at most 158 false families at 5 % and 342 at 10 %.

A session simulates every kind of noise and of effect at some number of seeds, and the kinds whose rate comes nearest to
the bound at every number; `make soak` simulates all of them at all.
"""

import numpy as np
import pytest
from scipy.stats import beta

from addnorm.statistics.multiple_testing import Decisions, decide
from pairwise import pairwise

VARIANTS, REFERENCES, TABLES, SIGMA, MARGIN = 18, 3, 4000, 0.002, 0.005
EVEN = np.ones(VARIANTS)
WIDE = np.geomspace(0.25, 4, VARIANTS)
UNEVEN = {
    "16 to 1, references quietest": WIDE,
    "16 to 1, references noisiest": WIDE[::-1],
    "16 to 1, shuffled": np.random.default_rng(1).permutation(WIDE),
    "one variant 10 times": np.where(np.arange(VARIANTS) == VARIANTS - 1, 10.0, 1.0),
    "three variants 5 times": np.where(np.arange(VARIANTS) >= VARIANTS - 3, 5.0, 1.0),
    "half 5 times": np.where(np.arange(VARIANTS) % 2 == 1, 5.0, 1.0),
}
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
"""The hardest known case: every comparison shares the noise of a reference."""
NEAREST = [name for name, noisy in NOISY_REFERENCES.items() if len(noisy) == 1]
"""Their rate comes nearest to the bound."""
OTHERS = [name for name in NOISY_REFERENCES if name not in NEAREST]
UNEVEN_SOME = [(name, (3, 5)[number % 2]) for number, name in enumerate(UNEVEN)]
NOISY_SOME = [
    *((name, seeds) for name in NEAREST for seeds in (3, 4, 5)),
    *((name, (3, 4, 5)[number % 3]) for number, name in enumerate(OTHERS)),
]
EVEN_SOME = [(3, 0, "none"), (5, 0, "none"), *pairwise([3, 5], [1, 2, 3], ["many", "one", "mixed"])]
EVEN_ALL = [
    *((seeds, 0, "none") for seeds in (3, 5)),
    *((seeds, size, where) for seeds in (3, 5) for size in (1, 2, 3) for where in ("many", "one", "mixed")),
]


def remaining(every: list[tuple[object, ...]], some: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The cases that only the soak simulates."""
    assert set(some) < set(every)
    return [case for case in every if case not in some]


def pairs_with(references: int) -> np.ndarray:
    """Every pair that one of the first variants takes part in."""
    return np.array([(a, b) for a in range(VARIANTS) for b in range(a + 1, VARIANTS) if a < references])


def simulate(
    seeds: int, spread: np.ndarray, effect: np.ndarray, *, references: int = REFERENCES, tables: int = TABLES
) -> tuple[Decisions, np.ndarray]:
    """Decisions on many tables, and the true difference of every pair. `spread` and `effect` count sigmas."""
    rng = np.random.default_rng(seeds)
    shared = 3 * SIGMA * rng.normal(size=(tables, 1, seeds))
    noise = SIGMA * spread[:, None] * rng.normal(size=(tables, VARIANTS, seeds))
    values = 2.5 + SIGMA * effect[:, None] + shared + noise
    pairs = pairs_with(references)
    decisions = decide(
        values,
        np.ones((VARIANTS, seeds), bool),
        pairs,
        np.arange(references),
        family=len(pairs),
        confidence=0.95,
        margin=MARGIN,
    )
    return decisions, SIGMA * (effect[pairs[:, 0]] - effect[pairs[:, 1]])


def at_most(happened: np.ndarray) -> float:
    """The largest rate that 99.9 % confidence leaves."""
    count = int(happened.sum())
    return float(beta.ppf(0.999, count + 1, happened.size - count))


def false_claims(decisions: Decisions, true: np.ndarray) -> np.ndarray:
    wrong = (decisions.claimed != 0) & (decisions.claimed != np.sign(true))
    return (wrong | (decisions.equivalent & (np.abs(true) >= MARGIN))).any(axis=-1)


def missed_by_an_interval(decisions: Decisions, true: np.ndarray) -> np.ndarray:
    return ((decisions.interval[..., 0] > true) | (decisions.interval[..., 1] < true)).any(axis=-1)


def effects(size: float) -> dict[str, np.ndarray]:
    """Where the true differences sit: all variants, one variant, or every other one and with it two references."""
    if size == 0:
        return {"none": np.zeros(VARIANTS)}
    many, one, mixed = np.zeros(VARIANTS), np.zeros(VARIANTS), np.zeros(VARIANTS)
    many[REFERENCES:] = size
    one[REFERENCES] = size
    mixed[::2] = -size
    return {"many": many, "one": one, "mixed": mixed}


@pytest.mark.parametrize(("seeds", "size", "where"), EVEN_SOME)
def test_even_noise_gives_at_most_five_per_cent_false_families(seeds: int, size: int, where: str) -> None:
    even_noise(seeds, size, where)


@pytest.mark.soak
@pytest.mark.parametrize(("seeds", "size", "where"), remaining(EVEN_ALL, EVEN_SOME))
def test_even_noise_everywhere(seeds: int, size: int, where: str) -> None:
    even_noise(seeds, size, where)


def even_noise(seeds: int, size: int, where: str) -> None:
    decisions, true = simulate(seeds, EVEN, effects(size)[where])
    assert at_most(false_claims(decisions, true)) < 0.05
    assert at_most(missed_by_an_interval(decisions, true)) < 0.05


@pytest.mark.parametrize(("name", "seeds"), UNEVEN_SOME)
def test_very_uneven_noise_gives_at_most_ten_per_cent(name: str, seeds: int) -> None:
    uneven_noise(name, seeds)


@pytest.mark.soak
@pytest.mark.parametrize(("name", "seeds"), remaining([(name, n) for name in UNEVEN for n in (3, 5)], UNEVEN_SOME))
def test_very_uneven_noise_everywhere(name: str, seeds: int) -> None:
    uneven_noise(name, seeds)


def uneven_noise(name: str, seeds: int) -> None:
    decisions, true = simulate(seeds, UNEVEN[name], np.zeros(VARIANTS))
    assert at_most(false_claims(decisions, true)) < 0.10
    assert at_most(missed_by_an_interval(decisions, true)) < 0.10


@pytest.mark.parametrize(("name", "seeds"), NOISY_SOME)
def test_noisy_references_give_at_most_ten_per_cent(name: str, seeds: int) -> None:
    noisy_references(name, seeds)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "seeds"), remaining([(name, n) for name in NOISY_REFERENCES for n in (3, 4, 5)], NOISY_SOME)
)
def test_noisy_references_everywhere(name: str, seeds: int) -> None:
    noisy_references(name, seeds)


def noisy_references(name: str, seeds: int) -> None:
    noisy = NOISY_REFERENCES[name]
    spread = np.concatenate([noisy, np.ones(VARIANTS - len(noisy))])
    # The rate comes nearest to the bound with one reference, and more tables tell a rate of 8 % from one of 10 %.
    tables = 3 * TABLES if len(noisy) == 1 else TABLES
    decisions, true = simulate(seeds, spread, np.zeros(VARIANTS), references=len(noisy), tables=tables)
    assert at_most(false_claims(decisions, true)) < 0.10
    assert at_most(missed_by_an_interval(decisions, true)) < 0.10


@pytest.mark.parametrize("seeds", [3, 5])
def test_the_floor_of_noisy_references_never_makes_a_claim_easier(seeds: int) -> None:
    decisions, _ = simulate(seeds, WIDE[::-1], np.zeros(VARIANTS))
    tests = decisions.tests
    assert tests.floor.noisy[:, :REFERENCES].any()
    assert not tests.floor.noisy[:, REFERENCES:].any()
    assert (tests.standard_error**2 * seeds >= tests.floor.variance * (1 - 1e-12)).all()
    assert (tests.df <= np.minimum(tests.noise.df, np.maximum(tests.floor.df, 1))).all()


def test_references_of_equal_noise_are_found_noisy_as_often_as_the_levels_state() -> None:
    """Three alone at 5 % each, and all together at 10 %: 25 % at most, and less because they overlap."""
    decisions, _ = simulate(3, EVEN, np.zeros(VARIANTS))
    rate = decisions.tests.floor.noisy.any(axis=-1).mean()
    assert 0.10 < rate < 0.25


@pytest.mark.parametrize(("seeds", "low", "high"), [(3, 0.42, 0.49), (5, 0.85, 0.91)])
def test_power_for_three_sigma(seeds: int, low: float, high: float) -> None:
    """Share of the 45 true differences of 3 sigma that are claimed."""
    decisions, true = simulate(seeds, EVEN, effects(3)["many"])
    power = float(np.mean(decisions.claimed[:, true != 0] == np.sign(true[true != 0])))
    assert low < power < high


def test_the_bound_notices_uncorrected_tests() -> None:
    """The check itself: plain 5 % tests on the same tables must fail it."""
    decisions, _ = simulate(3, EVEN, np.zeros(VARIANTS))
    plain = decisions.tests.p_value <= 0.05
    assert at_most(plain.any(axis=-1)) > 0.4


def test_adding_seeds_after_a_look_costs_what_the_guide_says() -> None:
    """Look at 3 seeds, add 2 where nothing is claimed, look again: more false families than at 5 seeds alone."""
    rng = np.random.default_rng(11)
    values = 2.5 + SIGMA * rng.normal(size=(TABLES, VARIANTS, 5))
    pairs = pairs_with(REFERENCES)
    looks = [
        decide(
            values[..., :seeds],
            np.ones((VARIANTS, seeds), bool),
            pairs,
            np.arange(REFERENCES),
            family=len(pairs),
            confidence=0.95,
            margin=MARGIN,
        )
        for seeds in (3, 5)
    ]
    first, second = (false_claims(look, np.zeros(len(pairs))) for look in looks)
    assert (first | second).mean() > 1.3 * second.mean()
