"""Variants in units of the reference's compute and steps: intervals that hold the truth, and marin's published form."""

import json
import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, t

import addnorm
from addnorm.cli import main
from addnorm.errors import InputError, UnknownName
from addnorm.statistics.effects.equal_loss import steps_to_equal_loss
from addnorm.statistics.effects.joint_law import JointLaw
from addnorm.statistics.effects.speedup import SizeRuns, speedup
from sampled import sampled

SIMULATION = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "speedup.py"))
Setting = SIMULATION["Setting"]
TABLES = 300


def plausible(rate: float, tables: int = TABLES) -> bool:
    low, high = binom.ppf([5e-5, 1 - 5e-5], tables, 0.95) / tables
    return bool(low <= rate <= high)


@pytest.mark.parametrize(
    "setting",
    sampled(
        4,
        [
            Setting(),
            Setting(seed_sd=0.009, shared=True),
            Setting(given={"limit": 1.6, "exponent": 0.0941}),
            Setting(worth=1.5, cost=1.1, sd=(0.01,)),
        ],
    ),
)
def test_the_intervals_of_three_sizes_and_three_seeds_hold_the_truth(setting: Any) -> None:
    assert plausible(SIMULATION["coverage"](setting, TABLES)[0])


def exact(worth: float = 1.2, limit: float = 1.6, exponent: float = 0.1, **more: Any) -> list[SizeRuns]:
    """Sizes without noise."""
    return [
        SizeRuns(
            size=f"{c:g}",
            reference=np.full(3, limit + 80 * c**-exponent),
            variant=np.full(3, limit + 80 * (worth * c) ** -exponent),
            reference_compute=c,
            variant_compute=c,
            **more,
        )
        for c in (1e17, 1e18, 1e19)
    ]


@pytest.mark.parametrize(("limit", "exponent"), [(1.6, 0.1), (0.0, 0.05), (2.5, 0.4)])
def test_without_noise_the_law_and_the_worth_are_found(limit: float, exponent: float) -> None:
    found = speedup(exact(1.2, limit, exponent))
    assert found.worth == pytest.approx(1.2, rel=1e-3)
    assert found.law is not None
    assert found.law.exponent == pytest.approx(exponent, rel=0.02)
    assert found.by_size == pytest.approx([1.2] * 3, rel=1e-3)
    assert found.interval is None  # runs without any spread tell no noise


def test_limit_and_exponent_given_are_the_formula_of_marin() -> None:
    """`effective_speedup` of the source at its own example, times the throughputs that it multiplies by."""
    at = SizeRuns(
        size="d512",
        reference=np.array([3.5422]),
        variant=np.array([3.52]),
        reference_compute=3.82e17,
        variant_compute=3.82e17,
    )
    coefficient = (3.5422 - 1.6) * 3.82e17**0.0941
    needed = (coefficient / (3.52 - 1.6)) ** (1 / 0.0941)
    assert speedup([at], limit=1.6, exponent=0.0941).worth == pytest.approx(needed / 3.82e17)


def test_the_derivatives_are_those_of_the_fit() -> None:
    """The fit is only determined by noisy losses; its linearisation is compared with fits to shifted means."""
    sizes = exact(1.3)
    means = np.array([[at.reference.mean(), at.variant.mean()] for at in sizes])
    fit = JointLaw(
        compute=np.array([[at.reference_compute, at.variant_compute] for at in sizes]),
        runs=np.array([[at.reference.size, at.variant.size] for at in sizes]),
    )

    def quantities(values: np.ndarray) -> np.ndarray:
        solved = fit.solve(values)
        return np.array([*solved.coefficients, solved.exponent, solved.limit])

    solved = fit.solve(means)
    for number, gradient in enumerate(np.eye(4)):
        predicted = fit.influence(solved, gradient)
        for place in np.ndindex(means.shape):
            step = np.zeros_like(means)
            step[place] = 2e-4
            found = (quantities(means + step) - quantities(means - step))[number] / 4e-4
            assert found == pytest.approx(predicted[place], rel=0.05, abs=0.02 * np.abs(predicted).max())


def test_seeds_in_common_cancel() -> None:
    """A seed's effect on both losses at once leaves the interval of given limit and exponent nearly as it was."""
    rng = np.random.default_rng(0)
    plain = SIMULATION["table"](Setting(shared=True), rng)
    moved = [
        SizeRuns(**{**vars(at), "reference": at.reference + shift, "variant": at.variant + shift})
        for at, shift in zip(plain, 0.01 * rng.normal(size=(3, 3)), strict=True)
    ]
    apart = [SizeRuns(**{**vars(at), "shared_seeds": False}) for at in moved]
    widths = [
        np.ptp(np.log(speedup(each, limit=1.6, exponent=0.0941).interval or ())) for each in (plain, moved, apart)
    ]
    assert widths[1] < 1.3 * widths[0]
    assert widths[2] > 2 * widths[1]


def test_steps_to_equal_loss_hold_the_truth() -> None:
    rng = np.random.default_rng(4)
    steps = np.arange(100, 2001, 100)
    held = np.zeros(2)
    for _ in range(TABLES):
        for place, shared in enumerate((True, False)):
            effects = 0.02 * rng.normal(size=(2, 4))
            curves = [
                {
                    seed + (0 if shared else 10 * model): {
                        float(step): 2 + 8 * (worth * step) ** -0.3 + effects[0 if shared else model, seed] + 0.005 * z
                        for step, z in zip(steps, rng.normal(size=steps.size), strict=True)
                    }
                    for seed in range(4)
                }
                for model, worth in enumerate((1.0, 1.2))
            ]
            interval = steps_to_equal_loss(curves[1], curves[0]).interval
            assert interval is not None
            held[place] += interval[0] <= 1.2 <= interval[1]
    assert plausible(held[0] / TABLES)
    # Welch's interval of four runs each is a little wide.
    assert plausible(held[1] / TABLES) or held[1] / TABLES > 0.95


def test_the_ratio_is_that_of_either_side() -> None:
    rng = np.random.default_rng(1)
    curves = [
        {s: {float(k): 2 + 8 * (m * k) ** -0.3 + 0.01 * e for k in (250, 500, 1000, 2000)} for s, e in enumerate(noise)}
        for m, noise in zip((1.0, 1.3), rng.normal(size=(2, 3)), strict=True)
    ]
    ahead, behind = steps_to_equal_loss(curves[1], curves[0]), steps_to_equal_loss(curves[0], curves[1])
    assert ahead.worth == pytest.approx(1 / behind.worth)
    assert ahead.interval is not None
    assert behind.interval is not None
    assert ahead.interval[0] == pytest.approx(1 / behind.interval[1])
    assert (ahead.reference_steps, behind.steps) == (2000, 2000)
    one = steps_to_equal_loss({0: curves[1][0]}, {0: curves[0][0]})
    assert one.interval is None


def test_the_interval_of_steps_is_a_t_interval_over_the_slope() -> None:
    losses = {0: (3.0, 2.8), 1: (3.02, 2.84), 2: (3.04, 2.79)}
    fast = {seed: {1000.0: a - 0.1, 2000.0: b - 0.1} for seed, (a, b) in losses.items()}
    slow = {seed: {1000.0: a, 2000.0: b} for seed, (a, b) in losses.items()}
    found = steps_to_equal_loss(fast, slow)
    mean = np.mean([np.array(each) - 0.1 for each in losses.values()], axis=0)
    share = (mean[0] - found.loss) / (mean[0] - mean[1])
    assert math.log(found.steps) == pytest.approx(math.log(1000) + share * math.log(2))
    differences = [b - ((1 - share) * (a - 0.1) + share * (b - 0.1)) for a, b in losses.values()]
    half = t.ppf(0.975, 2) * np.std(differences, ddof=1) / math.sqrt(3) / ((mean[0] - mean[1]) / math.log(2))
    assert found.interval is not None
    assert math.log(found.interval[1] / found.worth) == pytest.approx(half)


def rows(worths: dict[str, float], seeds: int = 3, sd: float = 0.003) -> list[dict[str, Any]]:
    rng = np.random.default_rng(7)
    return [
        {"variant": name, "seed": seed, "flops": c, "loss": 1.6 + 88.32 * (worth * c) ** -0.0941 + sd * rng.normal()}
        for name, worth in worths.items()
        for c in (3.82e17, 2.81e18, 1.16e19)
        for seed in range(seeds)
    ]


def test_a_table_of_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = rows({"base": 1.0, "deep": 1.1, "wide": 0.9})
    worths = addnorm.speedup(table)
    assert [worths.verdict(name) for name in ("deep", "wide")] == ["worth more", "worth less"]
    alone = addnorm.speedup(table, variants=["deep"])
    assert np.ptp(worths["deep"].interval) > np.ptp(alone["deep"].interval)  # type: ignore[arg-type]
    sized = [
        {**row, "size": f"d{row['flops']:.0e}", "flops": row["flops"] * (1.1 if row["variant"] == "deep" else 1)}
        for row in table
    ]
    costly = addnorm.speedup(sized, variants=["deep"])
    assert costly["deep"].worth == pytest.approx(alone["deep"].worth / 1.1, rel=0.01)
    path = tmp_path / "sizes.csv"
    path.write_text(
        "variant,seed,loss,hours\n" + "".join(f"{r['variant']},{r['seed']},{r['loss']},{r['flops']}\n" for r in table)
    )
    assert main(["rank", str(path), "--as", "speedup", "--columns", "compute=hours"]) == 0
    assert "deep: its compute is worth × 1.1" in capsys.readouterr().out
    options = ["--limit", "1.6", "--exponent", "0.0941", "--json"]
    assert main(["rank", str(path), "--as", "speedup", "--columns", "compute=hours", *options]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["variants"][0]["law"] is None
    assert answer["variants"][0]["verdict"] == "worth more"


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = rows({"base": 1.0, "deep": 1.1})
    two = [row for row in table if row["flops"] < 1e19]
    assert any("two sizes do not determine" in note for note in addnorm.speedup(two).warnings)
    single = [row for row in table if row["seed"] == 0]
    found = addnorm.speedup(single)
    assert found["deep"].interval is None
    assert found.verdict("deep") == "undecided"
    assert any("no interval" in note for note in found.warnings)
    for wrong, message in (
        ([row for row in table if row["flops"] < 1e18], "expected runs at two sizes or more, got 1"),
        ([{**row, "loss": 1 / row["loss"]} for row in table], "expected a reference whose loss falls"),
        ([{**row, "loss": math.inf} if i == 4 else row for i, row in enumerate(table)], "got a run that diverged"),
        ([{k: v for k, v in row.items() if k != "flops"} for row in table[0:4:3]], "second one after row 0"),
        (
            [{k: v for k, v in row.items() if k != "flops"} for row in (table[0], table[9])],
            "expected the compute of the run",
        ),
    ):
        with pytest.raises(InputError) as refused:
            addnorm.speedup(wrong)
        assert message in str(refused.value)
    with pytest.raises(InputError, match="expected a number below every mean loss"):
        addnorm.speedup(table, limit=5.0, exponent=0.1)
    with pytest.raises(UnknownName, match="Did you mean 'deep'"):
        addnorm.speedup(table, variants=["deeep"])
    path = tmp_path / "curves.csv"
    path.write_text("variant,seed,loss,step\na,0,3,100\na,0,2.5,200\nb,0,2.4,100\nb,0,2.2,200\n")
    for options, message in (
        (["--as", "steps"], "begin above the loss 2.5 which is compared, got 2.4 at step 100"),
        (["--as", "steps", "--limit", "1"], "expected no limit"),
        (["--as", "speedup"], "expected the compute"),
        (["--limit", "1"], "only with --rule or --as speedup"),
        (["--as", "steps", "--columns", "step="], "expected the step of the row"),
    ):
        assert main(["rank", str(path), *options]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
