"""Variants that are set apart: against a slow, plainly written form of the same method, and where there is nothing to do."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats

import addnorm
from addnorm.statistics import Result, rank
from addnorm.statistics.multiple_testing import decide
from addnorm.statistics.noise import fit_noise
from addnorm.statistics.noisy_variants import set_apart
from addnorm.statistics.pairs.paired_tests import paired_tests


def table(variants: int, seeds: int, *, seed: int = 0, noisy: dict[int, float] | None = None) -> np.ndarray:
    rng = np.random.default_rng(seed)
    spread = np.ones(variants)
    for variant, times in (noisy or {}).items():
        spread[variant] = times
    return (
        2.5
        + 0.01 * rng.normal(size=(variants, 1))
        + 0.02 * rng.normal(size=seeds)
        + 0.003 * spread[:, None] * rng.normal(size=(variants, seeds))
    )


def cells(shape: tuple[int, ...], missing: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([9, seed]).random(shape) >= missing


def least_squares(values: np.ndarray, present: np.ndarray, kept: list[int]) -> tuple[float, int]:
    """RSS and degrees of freedom of the additive model over the cells of some variants, by an explicit design."""
    rows = [(v, s) for v in kept for s in range(values.shape[1]) if present[v, s]]
    design = np.zeros((len(rows), sum(values.shape)))
    for number, (v, s) in enumerate(rows):
        design[number, v] = design[number, len(values) + s] = 1.0
    losses = np.array([values[row] for row in rows])
    if not rows:
        return 0.0, 0
    losses = losses - losses.mean()
    fitted, _, rank_of, _ = np.linalg.lstsq(design, losses, rcond=None)
    return float(((losses - design @ fitted) ** 2).sum()), len(rows) - int(rank_of)


def reference(values: np.ndarray, present: np.ndarray, pairs: np.ndarray, level: float = 0.1) -> dict[str, Any]:
    """The method of `noisy_variants`, one table, one number at a time."""

    def left_out(kept: list[int]) -> dict[int, tuple[float, int, float, int]]:
        """For each variant: fall of RSS and of the degrees of freedom without it, and what is left."""
        rss, df = least_squares(values, present, kept)
        found = {}
        for v in kept:
            less, less_df = least_squares(values, present, [k for k in kept if k != v])
            if df - less_df > 0 and less_df > 0:
                found[v] = (rss - less, df - less_df, less, less_df)
        return found

    def critical(number: int) -> float:
        return level * (1 - 2 / number) / number if number > 2 else 0.0

    kept, apart = list(range(len(values))), []
    first = len(left_out(kept))
    while True:
        tests = left_out(kept)
        p = {
            v: float(scipy.stats.f.sf((s / d) / (rest / rest_df), d, rest_df))
            for v, (s, d, rest, rest_df) in tests.items()
        }
        if not p or 2 * (first - len(apart) - 1) <= first:
            break
        noisiest = min(p, key=lambda v: p[v])
        if p[noisiest] >= critical(len(p)):
            break
        apart.append(noisiest)
        kept.remove(noisiest)

    rss, df = least_squares(values, present, kept)
    pooled = rss / df
    own = {}
    for v in apart:
        fall, own_df, _, _ = left_out([*kept, v])[v]
        own[v] = (fall / own_df, own_df)
    inner = left_out(kept)
    weights: dict[int, dict[int, float]] = {v: {} for v in kept}
    for v in inner if apart else ():
        odds = {}
        for k, (variance, own_df) in own.items():
            ratio = variance / pooled
            bar = scipy.stats.f.isf(critical(len(inner)), own_df, df)
            noticed = float(scipy.stats.f.sf(bar / ratio, own_df, df))
            fall, d, _, _ = inner[v]
            likelihood = math.exp(d / 2 * (fall / d / pooled * (1 - 1 / ratio) - math.log(ratio)))
            odds[k] = likelihood / (noticed * len(inner))
        counted = min(1.0, (len(apart) - 1 + 3 / len(inner)) / len(apart))
        weights[v] = {k: counted * o / (1 + sum(odds.values())) for k, o in odds.items()}

    retained_only = fit_noise(values, present & np.isin(np.arange(len(values)), kept)[:, None])
    found: dict[str, Any] = {"apart": sorted(apart), "p": [], "error": [], "df": []}
    for a, b in pairs:
        shared = np.flatnonzero(present[a] & present[b])
        n = len(shared)
        differences = values[a, shared] - values[b, shared]
        if n < 3:
            for name in ("p", "error", "df"):
                found[name].append(math.nan)
            continue
        variance = [own[v][0] if v in own else pooled for v in (a, b)]
        error = math.sqrt(max(differences.var(ddof=1), sum(variance)) / n)
        tail_df = float(n - 1) if a in own or b in own else min(float(retained_only.prior_df) + n - 1, df)
        size = abs(differences.mean())
        p = 2 * float(scipy.stats.t.sf(size / error, tail_df))
        if a not in own and b not in own:
            for k in own:
                sd = math.sqrt((pooled + own[k][0]) / n)
                weight = weights[a].get(k, 0.0) + weights[b].get(k, 0.0)
                p += 2 * weight * float(scipy.stats.norm.sf(size / sd))
        found["p"].append(min(p, 1.0))
        found["error"].append(error)
        found["df"].append(tail_df)
    return found


CASES = [
    (variants, seeds, noisy, missing)
    for variants, noisy in ((2, {}), (3, {2: 30}), (4, {0: 10}), (6, {}), (6, {1: 10, 4: 10}), (9, {0: 5, 3: 20}))
    for seeds in (2, 3, 5)
    for missing in (0.0, 0.25)
]


@pytest.mark.parametrize(("variants", "seeds", "noisy", "missing"), CASES, ids=str)
def test_the_vectorised_method_is_the_plain_one(
    variants: int, seeds: int, noisy: dict[int, float], missing: float
) -> None:
    """No references, so that no floor enters; Bartlett's d_0 has tests of its own."""
    pairs = np.array([(a, b) for a in range(variants) for b in range(a + 1, variants)])
    for seed in range(4):
        values = table(variants, seeds, seed=seed, noisy=noisy)
        present = cells(values.shape, missing, seed)
        present[0, 0] = True
        if least_squares(values, present, list(range(variants)))[1] == 0:
            continue
        expected = reference(values, present, pairs)
        tests = paired_tests(values, present, pairs, np.array([], dtype=int), quiet_level=0.0)
        assert np.flatnonzero(tests.set_apart).tolist() == expected["apart"]
        np.testing.assert_allclose(tests.standard_error, expected["error"], rtol=1e-7)
        np.testing.assert_allclose(tests.p_value, expected["p"], rtol=1e-6)
        tested = ~np.isnan(expected["error"])
        np.testing.assert_allclose(tests.df[tested], np.array(expected["df"])[tested], rtol=1e-9)


def test_cases_set_variants_apart() -> None:
    """The comparison above compares something: noisy variants are found in most of its tables, others in few."""
    found = [set_apart(table(9, 5, seed=seed, noisy={0: 5, 3: 20}), np.ones((9, 5), bool)) for seed in range(20)]
    assert np.mean(found, axis=0)[[0, 3]].min() > 0.8
    assert np.mean(found, axis=0)[[1, 2, 4, 5, 6, 7, 8]].max() < 0.2


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_where_none_is_set_apart_the_numbers_are_those_without_the_method(missing: float) -> None:
    compared = 0
    for seed in range(30):
        values = table(7, 4, seed=seed)
        present = cells(values.shape, missing, seed)
        pairs = np.array([(0, b) for b in range(1, 7)])
        tests = paired_tests(values, present, pairs, np.array([0]))
        if tests.set_apart.any():
            continue
        without = paired_tests(values, present, pairs, np.array([0]), level=0.0)
        np.testing.assert_array_equal(tests.standard_error, without.standard_error)
        np.testing.assert_array_equal(tests.p_value, without.p_value)
        np.testing.assert_array_equal(tests.half_width(0.95, 6), without.half_width(0.95, 6))
        compared += 1
    assert compared > 20


def test_of_two_variants_none_is_set_apart() -> None:
    values = np.stack([table(2, 5, seed=seed, noisy={1: 100.0}) for seed in range(50)])
    assert not set_apart(values, np.ones((2, 5), bool)).any()


def test_more_than_half_of_the_variants_are_retained() -> None:
    values = np.stack([table(8, 6, seed=seed, noisy=dict.fromkeys(range(6), 1000.0)) for seed in range(50)])
    assert set_apart(values, np.ones((8, 6), bool)).sum(axis=-1).max() <= 3
    everything = np.stack([table(8, 6, seed=seed, noisy=dict.fromkeys(range(8), 50.0)) for seed in range(50)])
    assert set_apart(everything, np.ones((8, 6), bool)).mean() < 0.05


def test_variants_without_noise_are_not_divided_by_rounding() -> None:
    """Three variants differ by exact constants: the only noise is the fourth's, and it stays everybody's."""
    values = 2.5 + 0.01 * np.arange(4)[:, None] + 0.02 * np.random.default_rng(0).normal(size=5)
    assert not set_apart(values, np.ones((4, 5), bool)).any()
    values[3] += 0.01 * np.random.default_rng(1).normal(size=5)
    assert not set_apart(values, np.ones((4, 5), bool)).any()


def test_runs_that_repeat_each_other_do_not_stop_the_method() -> None:
    values = table(6, 5, noisy={5: 50.0})
    values[1] = values[0]
    pairs = np.array([(0, b) for b in range(1, 6)])
    tests = paired_tests(values, np.ones((6, 5), bool), pairs, np.array([0]))
    assert np.flatnonzero(tests.set_apart).tolist() == [5]
    assert tests.difference[0] == 0
    assert tests.p_value[0] == 1


@pytest.mark.parametrize("lost", [math.nan, math.inf, 1e30])
def test_what_stands_in_a_missing_cell_is_not_looked_at(lost: float) -> None:
    values = table(5, 4, noisy={4: 30.0})
    present = np.ones(values.shape, bool)
    present[1, 2] = False
    pairs = np.array([(0, b) for b in range(1, 5)])
    one = paired_tests(values, present, pairs, np.array([0]))
    values[1, 2] = lost
    other = paired_tests(values, present, pairs, np.array([0]))
    np.testing.assert_array_equal(one.p_value, other.p_value)
    assert other.set_apart[4]


def test_the_interval_ends_where_the_tail_is_the_stated_one() -> None:
    values = table(9, 3, seed=2, noisy={8: 10.0})
    pairs = np.array([(0, b) for b in range(1, 9)])
    decisions = decide(values, np.ones((9, 3), bool), pairs, np.array([0]), family=8, confidence=0.95, margin=0.005)
    tests = decisions.tests
    assert tests.set_apart.any()
    retained = ~tests.set_apart[1:]
    assert (tests.doubt.weight[retained] > 0).all()
    assert not tests.doubt.weight[~retained].any(), "their own noise is known"
    np.testing.assert_allclose(tests.tail(tests.half_width(0.95, 8)), 0.05 / 16, rtol=1e-8)


def test_a_noisy_variant_changes_no_other_standard_error() -> None:
    """Ten and a hundred times the noise, 300 tables: the median of the ratio, and the same pairs without the variant."""
    for times in (10.0, 100.0):
        values = np.stack([table(10, 3, seed=seed, noisy={9: times}) for seed in range(300)])
        pairs = np.array([(0, b) for b in range(1, 9)])
        with_it = paired_tests(values, np.ones((10, 3), bool), pairs, np.array([0]))
        without = paired_tests(values[:, :9], np.ones((9, 3), bool), pairs, np.array([0]))
        assert with_it.set_apart[:, 9].mean() > 0.85
        assert np.median(with_it.standard_error / without.standard_error) == pytest.approx(1, abs=0.05)


def test_the_warning_names_the_variants_and_their_noise() -> None:
    values = table(8, 4, noisy={6: 40.0, 7: 80.0})
    results = [Result(variant=f"v{v}", seed=s, loss=float(values[v, s])) for v in range(8) for s in range(4)]
    ranking = rank(results, references=["v0"])
    assert ranking.set_apart == ("v6", "v7")
    (said,) = [note for note in ranking.warnings if note.note["code"] == "several_set_apart"]
    assert "v6 (" in said
    assert "v7 (" in said
    seeds = {name: ranking[name].versus["v0"] for name in ("v1", "v7")}
    assert seeds["v7"].standard_error > 3 * seeds["v1"].standard_error


def test_of_many_noisy_variants_the_noisiest_are_named() -> None:
    values = table(30, 6, noisy={v: 40.0 + v for v in range(22, 30)})
    results = [Result(variant=f"v{v}", seed=s, loss=float(values[v, s])) for v in range(30) for s in range(6)]
    ranking = rank(results, references=["v0"])
    (said,) = [str(note) for note in ranking.warnings if note.note["code"] == "several_set_apart"]
    named = sorted(ranking.set_apart, key=lambda name: ranking[name].residual_sd, reverse=True)
    assert [name for name in named if f"{name} (" in said] == named[:5]
    assert f" and {len(named) - 5} more; the others" in said
    assert len(named) > 5


def test_a_first_variant_that_is_far_noisier_is_said_to_be_the_reference() -> None:
    """Nobody chose it: the first of a table is the reference unless one is named."""
    values = table(6, 5, noisy={0: 30.0})
    rows = [{"variant": f"v{v}", "seed": s, "loss": float(values[v, s])} for v in range(6) for s in range(5)]
    said = "the reference v0 is the first variant of the table"
    assert said in " ".join(addnorm.rank(rows).warnings)
    assert said not in " ".join(addnorm.rank(rows, references=["v0"]).warnings)
    assert said not in " ".join(addnorm.rank(rows[5:]).warnings)
