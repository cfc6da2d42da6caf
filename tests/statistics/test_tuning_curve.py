"""The best value between tuned points: exact on parabolas, its interval over simulated studies, and where there is none."""

import math

import numpy as np
import pytest

from addnorm.reporting.sections.tuning import text
from addnorm.statistics import Result
from addnorm.statistics.tuning import TuningOutcome, tuning_outcome
from sampled import sampled

RATES = [1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2]
PATH = "training.optimizer.learning_rate"


def outcome_of(losses: np.ndarray, rates: list[float] = RATES) -> TuningOutcome:
    """Of one variant: losses by rate and seed."""
    points = {"base": {f"base, learning_rate {rate:g}": {PATH: rate} for rate in rates}}
    results = [
        Result(variant=name, seed=100 + seed, loss=float(loss))
        for name, row in zip(points["base"], losses, strict=True)
        for seed, loss in enumerate(row)
    ]
    return tuning_outcome(results, points, [100 + seed for seed in range(losses.shape[1])])


def parabola(best: float, rates: list[float] = RATES, curvature: float = 0.05) -> np.ndarray:
    return 2 + curvature * (np.log2(rates) - math.log2(best)) ** 2


@pytest.mark.parametrize("best", [2e-3, 3.1e-3, 5.5e-3])
def test_on_a_parabola_the_minimum_is_exact(best: float) -> None:
    seeds = np.array([0.1, -0.2, 0.05])  # effects that all points share
    (variant,) = outcome_of(parabola(best)[:, None] + seeds).variants
    assert variant.curve is not None
    assert variant.curve.path == PATH
    assert variant.curve.best == pytest.approx(best, rel=1e-9)
    assert variant.curve.interval == pytest.approx((best, best), rel=1e-4)


def test_uneven_steps_of_the_rate_are_no_matter() -> None:
    rates = [1e-3, 2.5e-3, 3e-3, 1e-2]
    (variant,) = outcome_of(parabola(2.7e-3, rates)[:, None] + np.zeros(2), rates).variants
    assert variant.curve is not None
    assert variant.curve.best == pytest.approx(2.7e-3, rel=1e-9)


@pytest.mark.parametrize("noise", sampled(2, [0.01, 0.003]))
def test_the_interval_holds_the_best_rate_in_95_of_100_studies(noise: float) -> None:
    rng = np.random.default_rng(5)
    inside, bounded = 0, 0
    for _ in range(600):
        best = 4e-3 * 2 ** rng.uniform(-0.5, 0.5)
        losses = parabola(best)[:, None] + rng.normal(0, 0.05, 3) + noise * rng.normal(size=(5, 3))
        (variant,) = outcome_of(losses).variants
        if variant.curve is None:  # the lowest point was at an end, or not convex
            inside, bounded = inside + 1, bounded
            continue
        low, high = variant.curve.interval or (0.0, math.inf)
        bounded += variant.curve.interval is not None
        inside += low <= best <= high
    assert inside / 600 >= 0.92  # 0.95 less 3.4 binomial sd; the choice of the three points takes a little
    assert bounded / 600 >= 0.92  # none where a point looks far noisier than the rest, as 5 % of even ones do


def test_none_at_an_edge_beside_a_lost_run_or_with_two_axes() -> None:
    (edge,) = outcome_of(parabola(1e-3)[:, None] + np.zeros(2)).variants
    assert edge.curve is None
    assert [found.end for found in edge.edges] == ["lowest"]
    (one,) = outcome_of(parabola(4e-3)[:, None]).variants  # one seed: no noise
    assert one.curve is not None
    assert one.curve.interval is None
    points = {"base": {f"base, {name}": {PATH: rate, "x": 1.0} for name, rate in zip("abc", RATES, strict=False)}}
    results = [Result(variant=name, seed=100, loss=loss) for name, loss in zip(points["base"], (3, 2, 3), strict=True)]
    assert tuning_outcome(results, points, [100]).variants[0].curve is None
    points = {"base": {f"base, {name}": {PATH: rate} for name, rate in zip("abc", RATES, strict=False)}}
    diverged = [Result(variant="base, c", seed=100, state="diverged")]
    assert tuning_outcome([*results[:2], *diverged], points, [100]).variants[0].curve is None


def test_the_text_gives_it_and_stays_as_it_was_without() -> None:
    rng = np.random.default_rng(6)
    content = outcome_of(parabola(3e-3)[:, None] + 0.002 * rng.normal(size=(5, 3))).to_json()
    shown = text(content)
    assert "Between the points" in shown
    assert "base learning_rate 0.003 [0.00" in " ".join(shown.split())
    del content["variants"][0]["curve"]
    assert "Between" not in text(content)
    assert shown.startswith(text(content).rstrip("\n"))
