"""Probabilities beside verdicts: calibrated, and in the words of the verdict's own numbers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, t

from addnorm.cli import main
from addnorm.statistics import Ranking, Result, rank
from addnorm.statistics.effects.posterior import posteriors
from addnorm.statistics.measure import measure_of


def ranking(losses: np.ndarray, margin: float = 0.005, **more: object) -> Ranking:
    runs = [
        Result(variant=f"v{v}", seed=s, loss=2.5 + float(loss))
        for v, row in enumerate(losses)
        for s, loss in enumerate(row)
    ]
    return rank(runs, references=["v0"], margin=margin, **more)  # type: ignore[arg-type]


def test_two_variants_have_the_posterior_of_a_paired_t_test() -> None:
    losses = np.random.default_rng(0).normal(size=(2, 6)) * 0.01
    differences = losses[1] - losses[0]
    error = differences.std(ddof=1) / np.sqrt(6)
    found = posteriors(ranking(losses))["v1", "v0"]
    ends = t.cdf((np.array([-0.005, 0.005]) - differences.mean()) / error, 5)
    assert (found.better, found.equivalent, found.worse) == pytest.approx((ends[0], ends[1] - ends[0], 1 - ends[1]))


@pytest.mark.thorough  # a simulation
def test_the_probabilities_are_calibrated() -> None:
    """Over true differences from a wide range, a stated probability of 0.6 to 0.9 is right that often."""
    rng = np.random.default_rng(1)
    stated, right = [], []
    for _ in range(600):
        effect = rng.uniform(-0.06, 0.06)
        losses = 0.01 * rng.normal(size=(3, 4))
        losses[1] += effect
        found = posteriors(ranking(losses, margin=0.005))["v1", "v0"]
        stated += [found.better, found.worse, found.equivalent]
        right += [effect < -0.005, effect > 0.005, abs(effect) <= 0.005]
    stated_, right_ = np.array(stated), np.array(right)
    for low, high in ((0.05, 0.3), (0.3, 0.6), (0.6, 0.9)):
        chosen = (stated_ > low) & (stated_ <= high)
        # The pooled noise has precautions, so that stated probabilities lie a little nearer to the middle than they could.
        ends = binom.ppf([1e-4, 1 - 1e-4], chosen.sum(), stated_[chosen].mean()) / chosen.sum()
        assert chosen.sum() > 60
        assert ends[0] - 0.03 <= right_[chosen].mean() <= ends[1] + 0.03


def test_a_measure_of_which_higher_is_better_is_turned() -> None:
    losses = np.array([[0.1, 0.2, 0.15, 0.12], [0.4, 0.5, 0.48, 0.41]])
    lower = posteriors(ranking(losses))["v1", "v0"]
    higher = posteriors(ranking(losses, measure=measure_of("accuracy", "higher")))["v1", "v0"]
    assert lower.worse == pytest.approx(higher.better)
    assert higher.better > 0.99


def test_the_command_shows_them_beside_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("variant,seed,loss\na,0,2.5\na,1,2.52\na,2,2.51\nb,0,2.41\nb,1,2.44\nb,2,2.42\n")
    assert main(["rank", str(path), "--posterior"]) == 0
    shown = capsys.readouterr().out
    assert "0.999" in shown
    assert "no verdicts" in shown
    assert main(["rank", str(path), "--posterior", "--json"]) == 0
    versus = json.loads(capsys.readouterr().out)["variants"][0]["versus"]["a"]
    assert versus["verdict"] == "better"
    assert sum(versus["posterior"].values()) == pytest.approx(1)
    assert main(["rank", str(path), "--posterior", "--rule", "modded-nanogpt"]) == 2


def test_an_interval_that_ends_at_the_margin_changes_no_probability() -> None:
    """The degrees of freedom follow from the interval before it is cut: with a far larger margin nothing is cut at it."""
    rng = np.random.default_rng(4)
    losses = 2.5 + 0.002 * (3 * rng.normal(size=5) + rng.normal(size=(4, 5)))
    results = [Result(variant=f"v{v}", seed=s, loss=float(losses[v, s])) for v in range(4) for s in range(5)]
    for margin in (0.0045, 0.005, 0.006):
        judged = rank(results, references=["v0"], margin=margin)
        for name in ("v1", "v2", "v3"):
            comparison = judged[name].versus["v0"]
            assert comparison.half_width is not None
            assert comparison.standard_error is not None
            wide = rank(results, references=["v0"], margin=1.0)[name].versus["v0"]
            assert comparison.half_width == wide.half_width
            assert comparison.interval is not None
            assert max(map(abs, comparison.interval)) <= margin or comparison.verdict != "equivalent"
            again = posteriors(replace(judged, margin=0.002))[name, "v0"]
            assert again == posteriors(replace(rank(results, references=["v0"], margin=1.0), margin=0.002))[name, "v0"]
