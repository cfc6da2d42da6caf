"""A second batch of seeds: what is found again, what is not, and how often a false verdict is."""

import numpy as np
import pytest
from scipy.stats import beta, ttest_rel

from addnorm.errors import InputError
from addnorm.statistics import Ranking, Result, rank
from addnorm.statistics.multiple_testing import holm
from addnorm.statistics.pairs.paired_tests import paired_tests
from addnorm.statistics.replication import found_pairs
from sampled import sampled

SIGMA = 0.002
FIRST, SECOND = tuple(range(5)), tuple(range(5, 10))


def results(values: np.ndarray, seeds: tuple[int, ...] = (*FIRST, *SECOND)) -> list[Result]:
    return [
        Result(variant=f"v{v}", seed=seed, loss=float(values[v, place]))
        for v in range(len(values))
        for place, seed in enumerate(seeds)
    ]


def study(rng: np.random.Generator, level: np.ndarray, batch: np.ndarray | None = None) -> np.ndarray:
    """Losses of both batches; `batch` adds to each variant in the first one alone."""
    values = level[:, None] + 3 * rng.normal(size=(1, 10)) + rng.normal(size=(len(level), 10))
    if batch is not None:
        values[:, :5] += batch[:, None]
    return 2.5 + SIGMA * values


def both(values: np.ndarray) -> Ranking:
    return rank(results(values), references=["v0"], second=SECOND)


def test_a_true_difference_is_found_again_and_one_unlucky_sample_is_not() -> None:
    """The first batch of the reference is unlucky: five variants look better, of which one is."""
    rng = np.random.default_rng(1)
    level = np.array([0.0, -8.0, 0.0, 0.0, 0.0, 0.0])
    ranking = both(study(rng, level, np.array([8.0, 0, 0, 0, 0, 0])))
    found = {name: ranking[name].versus["v0"] for name in ("v1", "v2", "v3", "v4", "v5")}
    assert {comparison.verdict for comparison in found.values()} == {"better"}
    states = {name: comparison.again.state for name, comparison in found.items() if comparison.again is not None}
    assert states == {"v1": "found again", **dict.fromkeys(("v2", "v3", "v4", "v5"), "not found again")}
    codes = [note.note["code"] for note in ranking.warnings]
    assert "not_found_again" in codes
    assert "one_sample_better" in codes


def test_the_first_batch_alone_makes_the_numbers() -> None:
    values = study(np.random.default_rng(2), np.array([0.0, -6.0, 0.0]))
    with_both, alone = both(values), rank(results(values[:, :5], FIRST), references=["v0"])
    for row in alone.variants:
        other = with_both[row.variant]
        assert (row.mean, row.seeds, row.tier, row.rank_interval) == (
            other.mean,
            other.seeds,
            other.tier,
            other.rank_interval,
        )
        for name, comparison in row.versus.items():
            assert comparison.p == other.versus[name].p
            assert comparison.interval == other.versus[name].interval


def test_of_two_variants_the_p_value_is_that_of_the_one_sided_paired_t_test() -> None:
    values = study(np.random.default_rng(3), np.array([0.0, -6.0]))
    again = both(values)["v1"].versus["v0"].again
    assert again is not None
    assert again.p == pytest.approx(ttest_rel(values[1, 5:], values[0, 5:], alternative="less").pvalue, rel=1e-9)
    assert again.difference == pytest.approx(float((values[1] - values[0])[5:].mean()))
    assert again.seeds_lower == int((values[1, 5:] < values[0, 5:]).sum())
    mirrored = again.mirrored()
    assert mirrored.difference == -again.difference


def test_before_the_second_batch_has_ended_it_is_found_once() -> None:
    values = study(np.random.default_rng(4), np.array([0.0, -8.0, -8.0]))
    runs = results(values)
    without = [run for run in runs if run.seed not in SECOND]
    begun = [run for run in runs if (run.variant, run.seed) != ("v1", 9)]
    begun.append(Result(variant="v1", seed=9, state="running"))
    for given, provisional in ((without, False), (begun, True)):
        ranking = rank(given, references=["v0"], second=SECOND)
        again = ranking["v1"].versus["v0"].again
        assert again is not None
        assert again.state == "found"
        assert again.difference is None
        assert ranking.provisional is provisional
    assert (
        rank([*without[:-1], Result(variant="v2", seed=4, state="running")], references=["v0"], second=SECOND)["v1"]
        .versus["v0"]
        .again
        is None
    ), "the first batch has not ended"


def test_a_verdict_for_which_no_second_batch_was_planned_waits_for_none() -> None:
    """Longer texts decide what the losses of training did not: the second batch was planned without that variant."""
    runs = results(study(np.random.default_rng(4), np.array([0.0, -8.0, -8.0])))
    ranking = rank(
        [run for run in runs if (run.variant, run.seed in SECOND) != ("v2", True)], references=["v0"], second=SECOND
    )
    tested, other = ranking["v1"].versus["v0"], ranking["v2"].versus["v0"]
    assert tested.verdict == other.verdict == "better"
    assert tested.again is not None
    assert tested.again.state == "found again"
    assert other.again is None


def test_a_verdict_on_a_run_that_fails_in_the_second_batch_is_not_found_again() -> None:
    values = study(np.random.default_rng(5), np.array([0.0, -8.0, 0.0]))
    runs = [
        Result(variant="v1", seed=7, state="diverged") if (run.variant, run.seed) == ("v1", 7) else run
        for run in results(values)
    ]
    again = rank(runs, references=["v0"], second=SECOND)["v1"].versus["v0"].again
    assert again is not None
    assert again.state == "not found again"


def test_equivalence_is_found_again_where_the_second_batch_shows_it_too() -> None:
    values = study(np.random.default_rng(6), np.zeros(4))
    values[:] = 2.5 + 0.1 * (values - 2.5)
    ranking = both(values)
    assert ranking["v1"].versus["v0"].verdict == "equivalent"
    again = ranking["v1"].versus["v0"].again
    assert again is not None
    assert again.state == "found again"
    values[1, 5:] += 0.02
    again = both(values)["v1"].versus["v0"].again
    assert again is not None
    assert again.state == "not found again"


@pytest.mark.parametrize("noisy", sampled(2, [3.0, 1.0]))
def test_a_false_verdict_is_found_again_in_at_most_one_per_cent(noisy: float) -> None:
    """2500 studies of six equal variants, with a reference of even noise or three times as noisy; those of which the first
    batch finds something are ranked with the second."""
    rng = np.random.default_rng(7)
    tables, pairs = 2500, np.array([(0, other) for other in range(1, 6)])
    noise = rng.normal(size=(tables, 6, 10))
    noise[:, 0] *= noisy
    values = 2.5 + SIGMA * (3 * rng.normal(size=(tables, 1, 10)) + noise)
    tests = paired_tests(values[..., :5], np.ones((6, 5), bool), pairs, np.array([0]))
    erring = (holm(tests.p_value, 5) <= 0.05).any(axis=-1)
    assert erring.sum() > 50, "the first batch errs, so that there is something to find again"
    again = 0
    for study_values in values[erring]:
        ranking = rank(results(study_values), references=["v0"], second=SECOND, margin=1e-9)
        found = [row.versus["v0"].again for row in ranking.variants if "v0" in row.versus]
        assert any(of is not None for of in found)
        again += any(of is not None and of.state == "found again" for of in found)
    assert beta.ppf(0.999, again + 1, tables - again) < 0.01


def test_most_true_differences_of_four_sigma_are_found_again() -> None:
    rng = np.random.default_rng(8)
    found = again = 0
    for _ in range(40):
        ranking = both(study(rng, np.array([0.0, -4.0, 0.0, -4.0])))
        states = [ranking[name].versus["v0"].again for name in ("v1", "v3")]
        found += sum(state is not None for state in states)
        again += sum(state is not None and state.state == "found again" for state in states)
    assert found > 70
    assert again > 0.95 * found


def test_every_found_comparison_counts_once() -> None:
    values = study(np.random.default_rng(9), np.array([0.0, -9.0, 9.0]))
    ranking = rank(results(values), references=["v0", "v1"], second=SECOND)
    comparisons = {row.variant: row.versus for row in ranking.variants}
    assert {frozenset(pair) for pair in found_pairs(comparisons)} == {
        frozenset(("v0", "v1")),
        frozenset(("v0", "v2")),
        frozenset(("v1", "v2")),
    }


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ((4, 5, 6), "got 4, which the study is compared or tuned on"),
        ((5, 6), "at least 3 distinct seeds"),
        ((5, 6, 6), "at least 3 distinct seeds"),
    ],
)
def test_seeds_that_were_seen_and_too_few_are_refused(second: tuple[int, ...], said: str) -> None:
    from addnorm.statistics.replication import require_unseen

    with pytest.raises(InputError, match=said):
        require_unseen(second, FIRST)
