"""A model that was evaluated without training: one value against the spread of trained variants over their seeds."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from addnorm.statistics import Result, rank
from addnorm.statistics.conclusion import conclusion
from addnorm.statistics.multiple_testing import decide
from addnorm.statistics.power import seeds_needed
from addnorm.statistics.seeds_in_stages import SeedsInStages

RANDOM = np.random.default_rng(3)
NOISE = RANDOM.normal(size=(3, 5))
SEED_EFFECT = RANDOM.normal(size=5)


def trained(levels: Sequence[float] = (0.0, -0.02, 0.03), seeds: int = 5) -> list[Result]:
    """Variants v0, v1, … with a seed effect ten times their own noise."""
    return [
        Result(
            variant=f"v{row}",
            seed=seed,
            loss=2.5 + level + 0.01 * SEED_EFFECT[seed] + 0.001 * NOISE[row, seed],
            content_hash=f"{row} {seed}",
        )
        for row, level in enumerate(levels)
        for seed in range(seeds)
    ]


def constant(loss: float, seeds: int = 5, name: str = "as-it-is") -> list[Result]:
    return [
        Result(variant=name, seed=seed, loss=loss, content_hash=f"{name} {loss}", trained=False)
        for seed in range(seeds)
    ]


def losses(results: Sequence[Result], variant: str) -> np.ndarray:
    return np.array([run.finished_loss for run in results if run.variant == variant])


def test_it_is_the_t_test_of_one_sample() -> None:
    runs = trained(levels=(0.0,))
    comparison = rank([*runs, *constant(2.53)], references=["v0"])["as-it-is"].versus["v0"]
    expected = stats.ttest_1samp(losses(runs, "v0"), 2.53)
    interval = expected.confidence_interval(0.95)
    assert comparison.p == pytest.approx(expected.pvalue)
    assert comparison.difference == pytest.approx(2.53 - losses(runs, "v0").mean())
    assert comparison.interval == pytest.approx((2.53 - interval.high, 2.53 - interval.low))
    assert comparison.seeds == 5
    assert comparison.verdict == "worse"
    assert comparison.by_seed == pytest.approx({s: 2.53 - x for s, x in enumerate(losses(runs, "v0"))})


def test_its_place_is_its_value_whatever_the_seeds_did() -> None:
    row = rank([*trained(), *constant(2.6)], references=["v0"])["as-it-is"]
    assert row.constant
    assert (row.mean, row.adjusted_mean, row.sd, row.interval) == (2.6, 2.6, None, None)
    assert row.rank_interval == (4, 4)


def test_the_other_comparisons_are_as_without_it_in_a_family_of_that_size() -> None:
    alone = rank(trained(), references=["v0"])
    beside = rank([*trained(), *constant(2.6)], references=["v0"])
    assert (alone.family, beside.family) == (2, 3)
    assert beside.noise_sd == pytest.approx(alone.noise_sd, rel=1e-9)
    assert beside.noise_df == alone.noise_df
    for name in ("v1", "v2"):
        one, other = alone[name].versus["v0"], beside[name].versus["v0"]
        assert other.difference == one.difference
        assert other.standard_error == pytest.approx(one.standard_error, rel=1e-9)
        assert beside[name].adjusted_mean == pytest.approx(alone[name].adjusted_mean, abs=1e-12)


def test_one_sentence_says_what_it_is_and_the_question_counts_the_seeds_of_the_trained() -> None:
    ranking = rank([*trained(), *constant(2.6)], references=["v0"])
    (note,) = (note for note in ranking.warnings if "as-it-is" in note)
    assert note.startswith("as-it-is is evaluated without training")
    assert "Seeds of each: 5" in conclusion(ranking)[0]


def test_as_the_reference_it_is_compared_with_all() -> None:
    ranking = rank([*trained(), *constant(2.52)], references=["as-it-is"])
    verdicts = {name: ranking[name].versus["as-it-is"].verdict for name in ("v0", "v1", "v2")}
    expected = {name: stats.ttest_1samp(losses(trained(), name), 2.52).pvalue * 3 < 0.05 for name in ("v0", "v1", "v2")}
    assert verdicts["v1"] == "better"
    assert all(verdicts[name] != "undecided" for name in expected if expected[name])


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ([*trained(), *(replace(run, trained=True) for run in constant(2.6))], "no spread"),
        ([*trained(seeds=2), *constant(2.6, seeds=2)], "2 seeds shared, a verdict needs 3"),
        ([*trained(), *constant(2.6)[:1]], "1 seed shared, a verdict needs 3"),
        ([*trained(), *(replace(run, content_hash=None) for run in constant(2.6))], "no spread"),
    ],
    ids=["trained copies", "two seeds", "one evaluation", "no hashes"],
)
def test_without_evidence_there_is_no_verdict(runs: list[Result], reason: str) -> None:
    comparison = rank(runs, references=["v0"])["as-it-is"].versus["v0"]
    assert (comparison.verdict, comparison.interval) == (None, None)
    assert reason in str(comparison.reason)


def test_two_of_them_have_a_difference_and_no_test() -> None:
    ranking = rank([*trained(), *constant(2.6), *constant(2.7, name="other")], references=["v0", "other"])
    comparison = ranking["as-it-is"].versus["other"]
    assert comparison.verdict is None
    assert "both are evaluated without training" in str(comparison.reason)
    assert ranking["other"].versus["v0"].verdict == ranking["as-it-is"].versus["v0"].verdict == "worse"


def test_seeds_needed_are_those_of_its_own_noise() -> None:
    runs = trained(levels=(0.0,))
    own = losses(runs, "v0")
    distance = 1.5 * float(stats.sem(own))
    loss = float(own.mean()) + distance
    comparison = rank([*runs, *constant(loss)], references=["v0"])["as-it-is"].versus["v0"]
    expected = seeds_needed(
        distance, float(own.std(ddof=1)), margin=0.005, confidence=0.95, family=1, variants=2, floor_df=1.0
    )
    assert comparison.verdict == "undecided"
    assert expected is not None
    assert comparison.seeds_needed == expected.seeds


def test_in_stages_it_stands_at_every_look() -> None:
    design = SeedsInStages.planned((0, 1, 2), 5)
    first = [run for run in (*trained(), *constant(2.6)) if run.seed < design.looks[0]]
    assert rank(first, references=["v0"], design=design)["as-it-is"].versus["v0"].seeds == 3
    whole = rank([*trained(), *constant(2.6)], references=["v0"], design=design)
    assert whole["as-it-is"].versus["v0"].verdict == "worse"


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("seed_effect", [0.0, 10.0])
def test_false_claims_are_at_most_the_stated_rate(seeds: int, seed_effect: float) -> None:
    """Four trained variants as good as the constant, with a common seed effect that the constant has not."""
    tables, variants = 4000, 5
    random = np.random.default_rng(11)
    values = random.normal(size=(tables, variants, seeds)) + seed_effect * random.normal(size=(tables, 1, seeds))
    values[:, 0] = 0.0
    present = np.ones((variants, seeds), bool)
    present[0, 1:] = False
    pairs = np.array([(0, other) for other in range(1, variants)])
    found = decide(
        values,
        present,
        pairs,
        np.array([0]),
        family=len(pairs),
        confidence=0.95,
        margin=1e-9,
        constant=np.arange(variants) == 0,
    )
    false = int((found.claimed != 0).any(axis=-1).sum())
    assert stats.binomtest(false, tables, 0.05, alternative="greater").pvalue > 0.001
    covered = (found.interval[..., 0] <= 0) & (found.interval[..., 1] >= 0)
    missed = int((~covered.all(axis=-1)).sum())
    assert stats.binomtest(missed, tables, 0.05, alternative="greater").pvalue > 0.001
