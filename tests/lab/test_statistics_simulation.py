"""Whether the stated error rates hold: the ranking's own code on data whose truth is known.

Eighteen variants, three of them references, a seed effect three times the noise. Each rate is held to its bound by the
upper end of a one-sided 99.9 % Clopper-Pearson interval: the test passes only if the simulation excludes a rate above
the bound. With 4000 tables that asks for at most 158 false families at 5 % and 342 at 10 %.
"""

import numpy as np
import pytest
from scipy.stats import beta

from addnorm.lab.statistics.decisions import Decisions, decide

VARIANTS, REFERENCES, TABLES, SIGMA, MARGIN = 18, 3, 4000, 0.002, 0.005
PAIRS = np.array([(a, b) for a in range(VARIANTS) for b in range(a + 1, VARIANTS) if a < REFERENCES])

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
HARDEST = {
    "one reference 10 times": np.where(np.arange(VARIANTS) == 0, 10.0, 1.0),
    "references 3 times": np.where(np.arange(VARIANTS) < REFERENCES, 3.0, 1.0),
    "references 2 times": np.where(np.arange(VARIANTS) < REFERENCES, 2.0, 1.0),
}


def simulate(seeds: int, spread: np.ndarray, effect: np.ndarray) -> tuple[Decisions, np.ndarray]:
    """Decisions on `TABLES` tables, and the true difference of every pair. `spread` and `effect` count sigmas."""
    rng = np.random.default_rng(seeds)
    shared = 3 * SIGMA * rng.normal(size=(TABLES, 1, seeds))
    noise = SIGMA * spread[:, None] * rng.normal(size=(TABLES, VARIANTS, seeds))
    values = 2.5 + SIGMA * effect[:, None] + shared + noise
    decisions = decide(
        values, np.ones((VARIANTS, seeds), bool), PAIRS, family=len(PAIRS), confidence=0.95, margin=MARGIN
    )
    return decisions, SIGMA * (effect[PAIRS[:, 0]] - effect[PAIRS[:, 1]])


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


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_even_noise_gives_at_most_five_per_cent_false_families(seeds: int, size: int) -> None:
    for effect in effects(size).values():
        decisions, true = simulate(seeds, EVEN, effect)
        assert at_most(false_claims(decisions, true)) < 0.05
        assert at_most(missed_by_an_interval(decisions, true)) < 0.05


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("name", UNEVEN)
def test_very_uneven_noise_gives_at_most_ten_per_cent(seeds: int, name: str) -> None:
    decisions, true = simulate(seeds, UNEVEN[name], np.zeros(VARIANTS))
    assert at_most(false_claims(decisions, true)) < 0.10
    assert at_most(missed_by_an_interval(decisions, true)) < 0.10


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("name", HARDEST)
def test_the_hardest_known_case_stays_where_the_guide_says(seeds: int, name: str) -> None:
    """Noisy references: three seeds cannot show that they are noisy. The guide states 14 %."""
    decisions, true = simulate(seeds, HARDEST[name], np.zeros(VARIANTS))
    assert at_most(false_claims(decisions, true)) < 0.165


@pytest.mark.parametrize(("seeds", "low", "high"), [(3, 0.45, 0.55), (5, 0.85, 0.93)])
def test_power_for_three_sigma(seeds: int, low: float, high: float) -> None:
    """Share of the 45 true differences of 3 sigma that are claimed. The guide states 49 % and 89 %."""
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
    looks = [
        decide(
            values[..., :seeds],
            np.ones((VARIANTS, seeds), bool),
            PAIRS,
            family=len(PAIRS),
            confidence=0.95,
            margin=MARGIN,
        )
        for seeds in (3, 5)
    ]
    first, second = (false_claims(look, np.zeros(len(PAIRS))) for look in looks)
    assert (first | second).mean() > 1.3 * second.mean()
