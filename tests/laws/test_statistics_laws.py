"""What holds for every study, whatever its numbers."""

import json
import math
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from addnorm.statistics import Ranking, Result, rank
from addnorm.statistics.multiple_testing import equivalence_p, holm, simultaneous_intervals
from addnorm.statistics.pairs.paired_tests import paired_tests
from addnorm.statistics.power import seeds_needed

LAWS = settings(max_examples=60, deadline=None)
MARGIN = 0.005


@st.composite
def studies(draw: st.DrawFn, complete: bool = False) -> list[Result]:
    """Two to six variants, one to six seeds, effects and noise from far below the margin to far above it."""
    variants, seeds = draw(st.integers(2, 6)), draw(st.integers(3 if complete else 1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    noise = 10.0 ** draw(st.floats(-5, -1))
    effect = 10.0 ** draw(st.floats(-5, -1))
    losses = 2.5 + effect * rng.normal(size=(variants, 1)) + 0.02 * rng.normal(size=seeds)
    losses = losses + noise * rng.normal(size=(variants, seeds))
    share = 0.0 if complete else draw(st.sampled_from([0.0, 0.2, 0.6]))
    results = []
    for variant in range(variants):
        for seed in range(seeds):
            lost = rng.random() < share
            state = str(rng.choice(["failed", "diverged", "running"])) if lost else "finished"
            results.append(
                Result(
                    variant=f"v{variant}",
                    seed=seed,
                    loss=None if lost else float(losses[variant, seed]),
                    accuracy=None if lost else float(rng.uniform(0.4, 0.6)),
                    state=state,
                )
            )
    return results


def judge(results: Sequence[Result]) -> Ranking:
    return rank(results, references=["v0", "v1"], margin=MARGIN)


@LAWS
@given(studies())
def test_an_interval_never_contradicts_its_verdict(results: list[Result]) -> None:
    for row in judge(results).variants:
        for comparison in row.versus.values():
            if comparison.interval is None:
                assert comparison.verdict in (None, "failed")
                continue
            low, high = comparison.interval
            assert comparison.difference is not None
            assert low <= comparison.difference <= high
            if comparison.verdict == "better":
                assert high <= 0
            elif comparison.verdict == "worse":
                assert low >= 0
            elif comparison.verdict == "equivalent":
                assert -MARGIN <= low <= high <= MARGIN
            elif comparison.verdict == "undecided":
                assert low < 0 < high
                assert low <= -MARGIN or high >= MARGIN


@LAWS
@given(studies())
def test_every_ranking_is_plain_json_and_drops_no_variant_or_run(results: list[Result]) -> None:
    ranking = judge(results)
    text = json.dumps(ranking.to_json(), allow_nan=False)
    assert json.loads(text) == ranking.to_json()
    assert {row.variant for row in ranking.variants} == {result.variant for result in results}
    assert sum(len(row.values) for row in ranking.variants) == len(results)


@LAWS
@given(studies(), st.randoms(use_true_random=False))
def test_the_order_in_which_runs_arrive_does_not_matter(results: list[Result], random: object) -> None:
    shuffled = list(results)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = judge(results), judge(shuffled)
    for row in one.variants:
        again = other[row.variant]
        assert (row.seeds, row.tier, row.rank_interval) == (again.seeds, again.tier, again.rank_interval)
        for name, comparison in row.versus.items():
            assert comparison.verdict == again.versus[name].verdict
            assert _close(comparison.difference, again.versus[name].difference)


@LAWS
@given(studies(complete=True), st.floats(-1, 1), st.floats(-0.5, 0.5))
def test_what_all_variants_share_at_a_seed_changes_no_verdict(results: list[Result], tilt: float, bend: float) -> None:
    moved = [
        Result(variant=r.variant, seed=r.seed, loss=r.finished_loss + 3 + tilt * r.seed + bend * math.cos(r.seed))
        for r in results
    ]
    one, other = judge(results), judge(moved)
    for row in one.variants:
        for name, comparison in row.versus.items():
            again = other[row.variant].versus[name]
            assert _close(comparison.difference, again.difference)
            assert _close(comparison.standard_error, again.standard_error)


@LAWS
@given(studies(complete=True))
def test_ranks_agree_with_each_other_and_with_the_order(results: list[Result]) -> None:
    ranking = judge(results)
    for position, row in enumerate(ranking.variants, start=1):
        assert row.rank_interval is not None
        best, worst = row.rank_interval
        assert 1 <= best <= position <= worst <= len(ranking.variants)
    slack = [row.rank_interval[1] - row.rank_interval[0] for row in ranking.variants if row.rank_interval]
    assert sum(slack) % 2 == 0  # each undecided pair leaves one rank open to both of its members


@LAWS
@given(studies(complete=True), st.integers(0, 5))
def test_a_copied_run_changes_nothing_but_the_warnings(results: list[Result], which: int) -> None:
    original = results[which % len(results)]
    copy = Result(variant=original.variant, seed=99, loss=original.loss, accuracy=original.accuracy)
    plain, copied = judge(results), judge([*results, copy])
    assert len(copied.warnings) == len(plain.warnings) + 1
    for row in plain.variants:
        again = copied[row.variant]
        assert (row.seeds, row.mean, row.tier, dict(row.versus)) == (
            again.seeds,
            again.mean,
            again.tier,
            dict(again.versus),
        )


@LAWS
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
    st.integers(0, 10),
)
def test_holm_is_at_least_the_plain_p_and_at_most_bonferroni(p_values: list[float], more: int) -> None:
    p = np.array(p_values)
    adjusted = holm(p, p.size + more)
    assert (adjusted >= p).all()
    assert (adjusted <= np.minimum(p * (p.size + more), 1.0)).all()
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0).all()


@LAWS
@given(st.integers(0, 2**32 - 1), st.floats(-5, -1), st.sampled_from([1.0, 20.0]), st.integers(1, 200))
def test_equivalence_is_the_interval_inside_the_margin(seed: int, noise: float, noisier: float, family: int) -> None:
    """With and without a variant that is set apart, whose existence adds a doubt to the others' tails."""
    rng = np.random.default_rng(seed)
    losses = (
        0.005 * rng.normal(size=(6, 1)) + 10.0**noise * rng.normal(size=(6, 4)) * np.array([1] * 5 + [noisier])[:, None]
    )
    pairs = np.array([(a, b) for a in range(6) for b in range(a + 1, 6)])
    tests = paired_tests(losses, np.ones(losses.shape, bool), pairs, np.arange(6))
    interval = simultaneous_intervals(tests, confidence=0.95, family=family)
    adjusted = 2 * family * equivalence_p(tests, margin=MARGIN)
    clear = np.abs(adjusted - 0.05) > 1e-9
    assert ((adjusted < 0.05) == (np.abs(interval).max(axis=-1) < MARGIN))[clear].all()
    excludes_zero = (interval[:, 0] > 0) | (interval[:, 1] < 0)
    assert (excludes_zero == (family * tests.p_value < 0.05))[np.abs(family * tests.p_value - 0.05) > 1e-9].all()


@LAWS
@given(st.floats(0, 0.1), st.floats(1e-4, 0.05), st.integers(2, 30), st.integers(1, 200))
def test_more_noise_never_needs_fewer_seeds(difference: float, sd: float, variants: int, family: int) -> None:
    needed = [
        seeds_needed(sign * difference, noise, margin=MARGIN, confidence=0.95, family=family, variants=variants)
        for noise, sign in ((sd, 1), (sd, -1), (1.5 * sd, 1))
    ]
    assert needed[0] is not None
    assert needed[2] is not None
    assert needed[0] == needed[1]
    assert 3 <= needed[0].seeds <= needed[2].seeds


def _close(one: float | None, other: float | None) -> bool:
    return one is other is None or (one is not None and other is not None and math.isclose(one, other, abs_tol=1e-12))
