"""Seeds in stages: the boundaries against published ones, the error rate over all looks, and what the next stage trains."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import beta, multivariate_normal

from addnorm.errors import InputError
from addnorm.statistics import Result, rank
from addnorm.statistics.alpha_spending import nominal_level, nominal_levels, sequential_p
from addnorm.statistics.multiple_testing import decide
from addnorm.statistics.seeds_in_stages import SeedsInStages

FIFTHS = (0.2, 0.4, 0.6, 0.8, 1.0)
DESIGN = SeedsInStages.planned((0, 1, 2), 20)


def boundaries(levels: np.ndarray) -> list[float]:
    return [round(float(-ndtri(level / 2)), 4) for level in levels]


def obrien_fleming(alpha: float) -> Callable[[float], float]:
    """The spending function that resembles O'Brien and Fleming's boundary (Lan & DeMets 1983)."""
    return lambda fraction: float(4 * ndtr(ndtri(alpha / 4) / np.sqrt(fraction)) / alpha)


def test_the_boundaries_are_the_published_ones() -> None:
    """Five looks, 5 % two-sided: the bounds of DeMets & Lan 1994, Stat. Med. 13, 1341-1352; alpha t to two decimals."""
    assert boundaries(nominal_levels(FIFTHS, 0.05, obrien_fleming(0.05))) == pytest.approx(
        [4.8769, 3.3570, 2.6803, 2.2898, 2.0310], abs=1e-4
    )
    assert boundaries(nominal_levels(FIFTHS, 0.05)) == pytest.approx([2.58, 2.49, 2.41, 2.34, 2.28], abs=0.006)


@pytest.mark.parametrize("alpha", [0.05, 0.05 / 33])
def test_two_looks_spend_what_they_may(alpha: float) -> None:
    """The probability of a claim at either look, by scipy's integral over the two correlated statistics."""
    first, second = -ndtri(nominal_levels((0.4, 1.0), alpha) / 2)
    correlated = multivariate_normal([0, 0], [[1, np.sqrt(0.4)], [np.sqrt(0.4), 1]], abseps=1e-10, releps=1e-10)
    inside = correlated.cdf([first, second], lower_limit=[-first, -second])
    assert 1 - inside == pytest.approx(alpha, rel=1e-4)


def test_a_sequential_p_value_is_the_level_that_just_claims() -> None:
    for place in range(len(DESIGN.looks)):
        for alpha in (1e-12, 3e-5, 0.05 / 33, 0.05, 0.3):
            p = np.array(nominal_level(DESIGN.looks, place, alpha))
            # Nominal levels are interpolated between levels that are a factor of 1.2 apart.
            assert float(sequential_p(DESIGN.looks, place, p)) == pytest.approx(alpha, rel=5e-4)
    assert np.isnan(sequential_p(DESIGN.looks, 0, np.array([np.nan]))).all()
    assert sequential_p(DESIGN.looks, 2, np.array([0.9, 1.0])).tolist() == [1.0, 1.0]


@pytest.mark.thorough  # a simulation
def test_all_looks_together_make_false_claims_in_at_most_5_percent() -> None:
    """No variant is dropped, so that every look can still err: 2000 studies of 13 variants, 33 comparisons, seven looks. The
    simulation with dropping is benchmarks/seeds_in_stages.py."""
    rng, tables = np.random.default_rng(3), 2000
    values = 2.5 + 0.006 * rng.normal(size=(tables, 1, 20)) + 0.0023 * rng.normal(size=(tables, 13, 20))
    pairs = np.array([(a, b) for a in range(3) for b in range(a + 1, 13)])
    present = np.ones((13, 20), bool)
    looks = [DESIGN.look(place, DESIGN.seeds) for place in range(len(DESIGN.looks))]
    rule = {"family": 33, "confidence": 0.95, "margin": 0.005}
    found = decide(values, present, pairs, np.arange(3), looks=looks, **rule)
    false = int((found.claimed != 0).any(axis=-1).sum())
    assert beta.ppf(0.999, false + 1, tables - false) < 0.05
    covered = (found.interval[..., 0] <= 0) & (found.interval[..., 1] >= 0)
    assert np.array_equal(covered.all(axis=-1), ~(found.claimed != 0).any(axis=-1))


def runs(levels: dict[str, float], seeds: int, **ended: int) -> list[Result]:
    """Runs of variants at true levels; of the variants in `ended`, so many alone."""
    rng = np.random.default_rng(5)
    noise = {name: 0.002 * rng.normal(size=20) for name in levels}
    return [
        Result(variant=name, seed=seed, loss=2.5 + level + float(noise[name][seed]))
        for name, level in levels.items()
        for seed in range(ended.get(name, seeds))
    ]


LEVELS = {"base": 0.0, "far": 0.04, "close": 0.0035}


def test_the_next_stage_trains_what_is_open() -> None:
    stages = rank(runs(LEVELS, 3), references=["base"], design=DESIGN).stages
    assert stages is not None
    assert stages.complete == 1
    assert stages.undecided == (("base", "close"),)
    assert stages.continuing == ("base", "close")
    last = rank(runs(LEVELS, 20, far=3), references=["base"], design=DESIGN).stages
    assert last is not None
    assert last.complete == 7
    assert last.continuing == ()


def test_a_stage_in_progress_changes_no_verdict() -> None:
    before = rank(runs(LEVELS, 3), references=["base"], design=DESIGN)
    begun = [*runs(LEVELS, 4, far=3)[:-1], Result(variant="close", seed=3, state="running")]
    during = rank(begun, references=["base"], design=DESIGN)
    for name in ("far", "close"):
        assert during[name].versus["base"] == before[name].versus["base"]
    assert during.provisional
    assert len(during["base"].values) == 4


def test_what_a_look_decided_stands() -> None:
    """The first look claims; the further seeds, which another comparison needed, speak for the opposite."""
    found = runs({**LEVELS, "far": 0.03}, 3)
    assert rank(found, references=["base"], design=DESIGN)["far"].versus["base"].verdict == "worse"
    found += [Result(variant=name, seed=3, loss=2.5 + (0.0 if name == "base" else -0.2)) for name in LEVELS]
    comparison = rank(found, references=["base"], design=DESIGN)["far"].versus["base"]
    assert comparison.verdict == "worse"
    assert comparison.interval is not None
    assert comparison.interval[0] > 0


def test_a_hopeless_comparison_gets_no_seeds() -> None:
    """Eight seeds without any mean difference; 20 are not expected to show one, nor equivalence within so small a margin."""
    losses = {"base": [0.001, -0.001] * 4, "close": [-0.001, 0.001] * 4, "far": [0.041, 0.041, 0.039, 0.039] * 2}
    found = [
        # No two losses are equal in every digit, which would make one a copy of the other.
        Result(variant=name, seed=seed, loss=2.5 + loss + 1e-7 * seed)
        for name, row in losses.items()
        for seed, loss in enumerate(row)
    ]
    stages = rank(found, references=["base"], margin=1e-6, design=DESIGN).stages
    assert stages is not None
    assert stages.undecided == stages.hopeless == (("base", "close"),)
    assert stages.complete == 4
    assert stages.continuing == ()


def test_a_copy_goes_on_with_its_original() -> None:
    found = runs(LEVELS, 3)
    found += [Result(variant="twin", seed=run.seed, loss=run.loss) for run in found if run.variant == "close"]
    stages = rank(found, references=["base"], design=DESIGN).stages
    assert stages is not None
    assert set(stages.continuing) == {"base", "close", "twin"}


def test_a_variant_that_diverged_gets_no_seeds() -> None:
    found = [run for run in runs(LEVELS, 4, far=3, base=4) if run.seed < 3]
    found = [
        Result(variant="close", seed=2, state="diverged") if (run.variant, run.seed) == ("close", 2) else run
        for run in found
    ]
    stages = rank(found, references=["base"], design=DESIGN).stages
    assert stages is not None
    assert "close" not in stages.continuing


@pytest.mark.parametrize(
    ("first", "most", "looks"),
    [((0, 1, 2), 20, (3, 4, 6, 8, 11, 15, 20)), ((7,), 5, (3, 4, 5)), ((0, 1, 2, 3, 4), 5, (5,)), ((0, 4), 4, (3, 4))],
)
def test_looks_are_planned_from_the_first_seeds_to_the_most(first: tuple[int, ...], most: int, looks: object) -> None:
    design = SeedsInStages.planned(first, most)
    assert design.looks == looks
    assert design.seeds[: len(first)] == first
    assert len(set(design.seeds)) == most
    assert SeedsInStages.from_json(design.to_json()) == design
    assert [seed for place in range(len(design.looks)) for seed in design.stage(place)] == list(design.seeds)


def test_a_wrong_design_is_refused() -> None:
    with pytest.raises(InputError, match="most: expected at least the 5 seeds of the first stage, got 4"):
        SeedsInStages.planned((0, 1, 2, 3, 4), 4)
    with pytest.raises(InputError, match="looks: expected ascending numbers of seeds from at least 3 to 5"):
        SeedsInStages(seeds=(0, 1, 2, 3, 4), looks=(3, 3, 5))
    with pytest.raises(InputError, match="design: expected seeds, looks and hopeless"):
        SeedsInStages.from_json({"seeds": [0, 1, 2]})
