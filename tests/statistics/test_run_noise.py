"""`addnorm noise`: intervals that hold the truth, differences that `rank` then decides, and clear refusals."""

import json
import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, chi2

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError
from addnorm.statistics.run_noise import run_noise
from addnorm.statistics.smallest_difference import smallest_difference
from sampled import sampled

SIMULATION = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "noise_of_runs.py"))
TABLES = 400
runs = SIMULATION["runs"]


def plausible(rate: float, tables: int, truth: float) -> bool:
    """True unless a binomial with that truth is this far away once in ten thousand times."""
    low, high = binom.ppf([5e-5, 1 - 5e-5], tables, truth)
    return bool(low <= round(rate * tables) <= high)


@pytest.mark.parametrize(("variants", "seeds", "seed_sd"), sampled(2, [(3, 5, 3.0), (13, 5, 1.0)]))
def test_the_intervals_hold_the_truth(variants: int, seeds: int, seed_sd: float) -> None:
    one, paired = SIMULATION["coverage"](variants, seeds, seed_sd, TABLES)
    assert plausible(paired, TABLES, 0.95)
    assert one >= binom.ppf(5e-5, TABLES, 0.95) / TABLES  # of two parts, the interval may hold the truth more often


@pytest.mark.parametrize(("comparisons", "seeds", "paired"), sampled(3, [(1, 3, True), (4, 3, True), (2, 5, False)]))
def test_rank_decides_the_smallest_difference_in_four_of_five_tables(
    comparisons: int, seeds: int, paired: bool
) -> None:
    assert plausible(SIMULATION["power"](comparisons, seeds, TABLES, paired=paired), TABLES, 0.8)


def test_one_variant_has_the_textbook_interval() -> None:
    losses = np.array([2.912, 2.934, 2.921, 2.905])
    noise = run_noise([("table", runs(losses[None] - 2.5))])
    squares = ((losses - losses.mean()) ** 2).sum()
    assert noise.one_run.sd == pytest.approx(losses.std(ddof=1))
    assert noise.one_run.low == pytest.approx(math.sqrt(squares / chi2.ppf(0.975, 3)))
    assert noise.one_run.high == pytest.approx(math.sqrt(squares / chi2.ppf(0.025, 3)))
    assert noise.paired is None
    assert noise.smallest(5, paired=True) is None


def test_a_shared_effect_of_seeds_is_in_one_noise_and_not_in_the_other() -> None:
    rng = np.random.default_rng(0)
    noise = run_noise([("table", runs(rng.normal(size=(40, 200)) + 3 * rng.normal(size=200)))])
    assert noise.paired is not None
    assert noise.paired.sd == pytest.approx(1, rel=0.02)
    assert noise.one_run.sd == pytest.approx(math.sqrt(10), rel=0.15)
    assert noise.one_run.df < 400  # 199 seeds, and not 40 times as many


def test_studies_are_pooled_and_unequal_ones_are_named() -> None:
    rng = np.random.default_rng(1)
    quiet, noisy = rng.normal(size=(1, 30)), 5 * rng.normal(size=(1, 30))
    pooled = run_noise([("quiet", runs(quiet)), ("noisy", runs(noisy))])
    assert pooled.one_run.sd == pytest.approx(math.sqrt((quiet.var(ddof=1) + noisy.var(ddof=1)) / 2))
    assert [warning.note["code"] for warning in pooled.warnings] == ["noise_differs_between_studies"]
    assert [row.variant for row in pooled.variants] == ["quiet: v0", "noisy: v0"]
    assert not run_noise([("a", runs(quiet)), ("b", runs(quiet[:, ::-1]))]).warnings


def test_a_far_noisier_variant_is_left_out_and_named() -> None:
    losses = np.random.default_rng(2).normal(size=(6, 5))
    losses[3] *= 100
    noise = run_noise([("table", runs(losses))])
    assert noise.one_run.high < 10
    assert "noise_without" in [warning.note["code"] for warning in noise.warnings]


def test_more_seeds_decide_smaller_differences_and_fewer_seeds_suffice_for_larger_ones() -> None:
    for paired in (True, False):
        sizes = [smallest_difference(seeds, 3, 0.95, paired=paired) for seeds in (3, 5, 10, 11, 20, 200, 20000)]
        assert sizes == sorted(sizes, reverse=True)
    noise = run_noise([("table", runs(np.random.default_rng(3).normal(size=(2, 6))))])
    for difference in (0.05, 0.5, 2.0):
        needed = noise.needed(difference)
        assert needed.paired is not None
        at, before = noise.smallest(needed.paired, paired=True), noise.smallest(max(needed.paired - 1, 3), paired=True)
        assert at is not None
        assert before is not None
        assert at.difference <= difference
        assert needed.paired == 3 or before.difference > difference
    assert noise.needed(1e-9).paired is None


def test_the_command_prints_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.csv"
    rows = [
        f"{name},{seed},{loss}" for name, of in (("a", (1, 2, 4)), ("b", (2, 3, 6))) for seed, loss in enumerate(of)
    ]
    path.write_text("\n".join(["variant,seed,loss", *rows]), encoding="utf-8")
    assert main(["noise", str(path), "--difference", "3", "--seeds", "3,5"]) == 0
    text = capsys.readouterr().out
    assert "Standard deviation of one run: 1.83" in text
    assert "A difference of 3 nats per token takes, per variant: with the same seeds 3 seeds" in text
    assert main(["noise", str(path), "--difference", "3", "--seeds", "3,5", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content == addnorm.noise(path, seeds=[3, 5], differences=[3]).to_json()
    assert [row["seeds"] for row in content["smallest"]] == [3, 5]
    assert content["needed"][0]["paired_range"][0] <= content["needed"][0]["paired"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"differences": [0.0]}, "difference: expected a positive number"),
        ({"seeds": [2]}, "seeds: expected at least 3"),
        ({"comparisons": 0}, "comparisons: expected at least 1"),
        ({"confidence": 95}, "confidence: expected a number between 0.5 and 1"),
    ],
)
def test_numbers_out_of_range_are_refused(options: dict[str, object], said: str) -> None:
    rows = [{"variant": "base", "seed": seed, "loss": loss} for seed, loss in enumerate((2.5, 2.6))]
    with pytest.raises(InputError) as refused:
        addnorm.noise(rows, **options)  # type: ignore[arg-type]
    assert said in str(refused.value)


def test_runs_without_any_spread_are_refused() -> None:
    rows = [{"variant": f"v{seed}", "seed": seed, "loss": 2.5 + seed} for seed in range(3)]
    for sources, said in (((rows,), "at least two finished runs that differ"), ((), "at least one source")):
        with pytest.raises(InputError) as refused:
            addnorm.noise(*sources)
        assert said in str(refused.value)
    scores = [{"variant": "v", "seed": seed, "acc": seed} for seed in range(3)]
    with pytest.raises(InputError) as refused:
        addnorm.noise(scores, columns={"loss": "acc"})
    assert "a direction for another number" in str(refused.value)
