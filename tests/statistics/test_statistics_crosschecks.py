"""The formulas against scipy and statsmodels, where those compute the same thing."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import statsmodels.formula.api as smf
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import ttost_paired

from addnorm.statistics.multiple_testing import decide, equivalence_p, holm
from addnorm.statistics.noise import bartlett_p, fit_levels, fit_noise, prior_df
from addnorm.statistics.pairs.paired_tests import paired_tests
from addnorm.statistics.power import difference_power, equivalence_power, seeds_needed


def _table(variants: int, seeds: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (
        2.5
        + 0.01 * rng.normal(size=(variants, 1))
        + 0.02 * rng.normal(size=seeds)
        + 0.003 * rng.normal(size=(variants, seeds))
    )


def _missing(values: np.ndarray, share: float = 0.25) -> np.ndarray:
    return np.random.default_rng(5).random(values.shape) > share


def _long(values: np.ndarray, present: np.ndarray) -> pd.DataFrame:
    rows, columns = np.nonzero(present)
    return pd.DataFrame({"variant": rows, "seed": columns, "loss": values[rows, columns]})


@pytest.mark.parametrize("seeds", [3, 4, 9])
def test_two_variants_give_the_paired_t_test(seeds: int) -> None:
    values = _table(2, seeds)
    tests = paired_tests(values, np.ones(values.shape, bool), np.array([[0, 1]]), np.array([0]))
    theirs = scipy.stats.ttest_rel(values[0], values[1])
    assert tests.df[0] == theirs.df
    np.testing.assert_allclose(tests.difference[0] / tests.standard_error[0], theirs.statistic, rtol=1e-9)
    np.testing.assert_allclose(tests.p_value[0], theirs.pvalue, rtol=1e-9)


@pytest.mark.parametrize("complete", [True, False], ids=["balanced", "missing cells"])
def test_residual_and_levels_are_those_of_two_way_least_squares(complete: bool) -> None:
    values = _table(7, 5)
    present = np.ones(values.shape, bool) if complete else _missing(values)
    fit = smf.ols("loss ~ C(variant) + C(seed)", data=_long(values, present)).fit()
    noise = fit_noise(values, present)
    assert noise.df == fit.df_resid
    assert noise.df == (24 if complete else present.sum() - 11)
    np.testing.assert_allclose(noise.sd, np.sqrt(fit.mse_resid), rtol=1e-9)
    levels = fit_levels(values, present)
    theirs = [fit.params.get(f"C(variant)[T.{v}]", 0.0) for v in range(7)]
    np.testing.assert_allclose(levels - levels[0], theirs, atol=1e-12)


def test_disconnected_cells_lose_a_degree_of_freedom_each_block() -> None:
    values = _table(4, 6)
    present = np.zeros(values.shape, bool)
    present[:2, :3] = present[2:, 3:] = True
    assert fit_noise(values, present).df == 2 + 2
    np.testing.assert_allclose(fit_levels(values, present)[0], values[0, :3].mean())


@pytest.mark.parametrize("extra", [0, 4])
def test_holm_is_that_of_statsmodels(extra: int) -> None:
    p = np.random.default_rng(3).random(12) ** 4
    theirs = multipletests(np.concatenate([p, np.ones(extra)]), method="holm")[1][: p.size]
    np.testing.assert_allclose(holm(p, p.size + extra), theirs, rtol=1e-12)


def test_equivalence_is_that_of_statsmodels() -> None:
    values = _table(2, 6)
    tests = paired_tests(values, np.ones(values.shape, bool), np.array([[0, 1]]), np.array([0]))
    theirs = ttost_paired(values[0], values[1], -0.02, 0.02)[0]
    ours = equivalence_p(tests, margin=0.02)
    np.testing.assert_allclose(ours[0], theirs, rtol=1e-9)


def test_the_test_of_equal_variances_is_bartletts() -> None:
    groups = np.random.default_rng(1).normal(size=(5, 8)) * np.array([1, 1, 2, 1, 3])[:, None]
    theirs = scipy.stats.bartlett(*groups).pvalue
    ours = bartlett_p(groups.var(axis=1, ddof=1), np.full(5, 7.0))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_prior_degrees_of_freedom_are_recovered() -> None:
    rng = np.random.default_rng(2)
    common = 6 / rng.chisquare(6, size=20_000)
    variances = common * rng.chisquare(4, size=common.size) / 4
    # The variance of 20 000 logarithms is known to about 1.5 %; d_0 moves by less than 5 % for that.
    np.testing.assert_allclose(prior_df(variances, np.full(common.size, 4.0)), 6, rtol=0.1)


@pytest.mark.parametrize(
    ("df", "shift", "critical"), [(2.0, 3.0, 4.3), (24.0, 4.0, 3.6), (34.5, 3.67, 3.6), (1e4, 4.0, 3.3)]
)
def test_power_of_a_difference_is_the_noncentral_t(df: float, shift: float, critical: float) -> None:
    np.testing.assert_allclose(
        difference_power(shift, critical, df), scipy.stats.nct.sf(critical, df, shift), atol=1e-6
    )


def test_power_of_equivalence_is_the_simulated_rate() -> None:
    rng = np.random.default_rng(4)
    repeats, df, error, margin, critical, true = 200_000, 34.0, 0.0012, 0.005, 2.9, 0.001
    found = true + error * rng.normal(size=repeats)
    scale = error * np.sqrt(rng.chisquare(df, repeats) / df)
    simulated = np.mean(np.abs(found) + critical * scale < margin)
    power = equivalence_power(true, error, margin=margin, critical=critical, df=df)
    assert abs(power - simulated) < 4 * np.sqrt(power * (1 - power) / repeats)


def test_seeds_needed_is_the_first_number_with_enough_power() -> None:
    sd, family, variants, difference = 0.003, 48, 18, 0.004
    needed = seeds_needed(difference, sd, margin=0.0005, confidence=0.95, family=family, variants=variants)
    assert needed is not None
    assert needed.decides == "difference"

    def power(seeds: int) -> float:
        df = (variants - 1) * (seeds - 1)
        critical = scipy.stats.t.ppf(1 - 0.05 / (2 * family), df)
        return float(scipy.stats.nct.sf(critical, df, difference / (sd / np.sqrt(seeds))))

    assert power(needed.seeds) >= 0.8 > power(needed.seeds - 1)


def test_a_batch_is_its_tables_one_by_one() -> None:
    batch = np.stack([_table(6, 4, seed) for seed in range(5)])
    present = _missing(batch[0], 0.1)
    pairs = np.array([(0, b) for b in range(1, 6)])
    together = decide(batch, present, pairs, np.array([0]), family=5, confidence=0.95, margin=0.005)
    for index, values in enumerate(batch):
        alone = decide(values, present, pairs, np.array([0]), family=5, confidence=0.95, margin=0.005)
        np.testing.assert_allclose(together.p[index], alone.p, rtol=1e-9)
        np.testing.assert_allclose(together.interval[index], alone.interval, rtol=1e-9)
