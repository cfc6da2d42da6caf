"""Equal printed losses: copies only where they are more frequent than chance makes them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from addnorm.statistics import Result, kuang_2025, rank
from addnorm.statistics.repeats import _at_least, _chance, agrees_by_chance, repeats, resolution
from addnorm.statistics.trend import Size, trend

# KellerJordan/modded-nanogpt, record of 2026-05-27: final losses of repeated runs, printed to four digits.
MUDD = {
    "s1385": (3.2804, 3.2796, 3.2773, 3.2781, 3.2778, 3.2786, 3.2762, 3.2800, 3.2788, 3.2773),
    "s1335": (3.2843, 3.2855, 3.2834, 3.2883, 3.2835, 3.2858, 3.2827, 3.2852, 3.2842),
    "v1": (3.2757, 3.2773, 3.2758, 3.2779, 3.2778, 3.2784, 3.2770, 3.2784, 3.2770, 3.2784, 3.2748),
    "v2": (3.2788, 3.2779, 3.2763, 3.2776, 3.2775, 3.2788, 3.2793, 3.2770, 3.2790, 3.2786),
    "v3": (3.2787, 3.2786, 3.2778, 3.2791, 3.2797, 3.2772, 3.2800, 3.2779, 3.2772, 3.2789),
}


def results(losses: dict[str, tuple[float, ...]]) -> list[Result]:
    return [Result(variant=v, seed=s, loss=x) for v, row in losses.items() for s, x in enumerate(row)]


def normal(variants: int, seeds: int, digits: int, sd: float = 0.001, seed: int = 0) -> dict[str, tuple[float, ...]]:
    """Runs without copies, printed to some digits."""
    drawn = 3.0 + 0.01 * np.arange(variants)[:, None] + sd * np.random.default_rng(seed).normal(size=(variants, seeds))
    return {f"v{row}": tuple(round(float(x), digits) for x in values) for row, values in enumerate(drawn)}


def codes(runs: list[Result]) -> list[str]:
    return [str(warning.note["code"]) for warning in rank(runs, references=[runs[0].variant]).warnings]


def test_every_published_run_counts_and_the_equal_ones_are_named() -> None:
    ranking = rank(results(MUDD), references=["s1385"])
    for row in ranking.variants:
        assert row.seeds == len(MUDD[row.variant])
        assert row.mean == pytest.approx(np.mean(MUDD[row.variant]))
    (said,) = [w for w in ranking.warnings if w.note["code"] == "equal_prints"]
    assert "variant: 6 (s1385 (1), v1 (3), v2 (1), v3 (1))" in said
    assert "0.0001" in said


@pytest.mark.parametrize("digits", [2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(5))
def test_genuine_runs_are_kept_at_every_resolution(digits: int, seed: int) -> None:
    losses = normal(5, 10, digits, seed=seed)
    ranking = rank(results(losses), references=["v0"])
    assert [row.seeds for row in ranking.variants] == [10] * 5
    assert not {"copy", "same_variant"} & set(codes(results(losses)))


def test_copies_among_genuine_runs_are_found_at_high_resolution() -> None:
    losses = normal(4, 6, 7)
    losses["v1"] = (losses["v1"][0],) * 6
    ranking = rank(results(losses), references=["v0"])
    assert [row.seeds for row in ranking.variants if row.variant == "v1"] == [1]
    assert [row.seeds for row in ranking.variants if row.variant != "v1"] == [6] * 3


def test_one_copied_variant_leaves_the_coincidences_of_others() -> None:
    """Many equal runs of one variant are copies by themselves; others with equal digits by chance still count."""
    losses = {**MUDD, "again": (3.2791,) * 12, "other": (3.2691, 3.2702, 3.2711)}
    ranking = rank(results(losses), references=["s1385"])
    assert ranking["v1"].seeds == 11
    assert ranking["again"].seeds == 1 or ranking["again"].versus["s1385"].reason_code == "same_digits"


def test_every_method_run_twice_with_equal_results_is_copies() -> None:
    """Of the five methods that Kuang (2025) ran twice, four agree in every digit: far more than chance."""
    table = kuang_2025()
    ranking = rank(table.results, references=table.references)
    assert sum(w.note["code"] == "copy" for w in ranking.warnings) == 4
    assert repeats(table.results).copies >= {"base", "v4m4", "v4m5", "v4m6"}


def test_full_precision_and_hashes_decide_as_before() -> None:
    runs = [Result(variant="a", seed=s, loss=2.5 + 0.001 * s / 7) for s in range(4)]
    other = [Result(variant="b", seed=s, loss=2.4 + 0.001 * s / 3) for s in range(4)]
    twin = replace(runs[1], seed=9)
    assert "copy" in codes([*runs, twin, *other])
    hashed = [replace(run, content_hash=f"{run.variant}{run.seed}") for run in (*runs, twin, *other)]
    assert "copy" not in codes(hashed), "another hash is another computation"
    same = [replace(run, content_hash="x") if run.loss == twin.loss else run for run in hashed]
    assert "copy" in codes(same)


@pytest.mark.parametrize("digits", [2, 4, 9])
def test_one_computation_under_two_names(digits: int) -> None:
    losses = normal(4, 5, digits)
    losses["again"] = losses["v2"]
    ranking = rank(results(losses), references=["v0"])
    if digits == 2:
        assert ranking["again"].same_as is None, "two digits cannot tell"
        assert "equal_variants" in [w.note["code"] for w in ranking.warnings]
    else:
        assert ranking["again"].same_as == "v2"


def test_a_variant_whose_runs_all_print_one_loss_has_no_verdict() -> None:
    losses = {"a": (2.51, 2.52, 2.51, 2.53), "b": (2.49,) * 4}
    ranking = rank(results(losses), references=["a"])
    comparison = ranking["b"].versus["a"]
    assert (comparison.verdict, comparison.reason_code, comparison.seeds) == (None, "same_digits", 4)
    assert ranking["b"].rank_interval == (1, 2)
    assert comparison.difference == pytest.approx(2.49 - 2.5175)


@pytest.mark.parametrize(
    ("losses", "step"),
    [
        ([3.2804, 3.28, 3.279], 1e-4),
        ([2.5, 2.5], 0.1),
        ([3, 4], 1.0),
        ([71.2, 70.95], 0.01),
        ([0.00012, 0.00013], 1e-5),
        ([1.5e-7, 2e-7], 1e-8),
        ([float(np.float32(2.5096822)), float(np.float32(2.4197011))], 2.0**-22),
        ([2.515625, 2.53125], 2.0**-6),
        ([float(np.float16(2.5078)), float(np.float16(2.4961))], 2.0**-9),
    ],
)
def test_resolution_of_printed_numbers(losses: list[float], step: float) -> None:
    assert resolution(losses) == pytest.approx(step)


def test_full_precision_is_that_of_a_float() -> None:
    assert resolution([2.5096822134, 1 / 3, 2 / 7]) < 1e-15


@pytest.mark.parametrize("sd", [0.02, 0.1, 0.3, 1.0, 10.0])
def test_the_chance_of_equal_digits_is_the_simulated_one(sd: float) -> None:
    rng = np.random.default_rng(1)
    offset = rng.random(200_000)
    one, other = (np.round(sd * rng.normal(size=200_000) + offset) for _ in range(2))
    runs = [Result(variant="a", seed=s, loss=x) for s, x in enumerate((1.0, 2.0))]
    chance = _chance(runs, sd)
    assert (one == other).mean() == pytest.approx(chance, abs=5 * np.sqrt(chance * (1 - chance) / 200_000))


def test_the_tail_of_trials_is_the_binomial_one() -> None:
    for count in (1, 3, 7):
        tail = sum(math.comb(20, k) * 0.2**k * 0.8 ** (20 - k) for k in range(count, 21))
        assert _at_least(count, np.full(20, 0.2)) == pytest.approx(tail)
        assert _at_least(count, np.full(2000, 0.002)) >= 1 - sum(
            math.comb(2000, k) * 0.002**k * 0.998 ** (2000 - k) for k in range(count)
        ), "beyond some trials it is a bound"


def test_few_genuine_tables_are_taken_for_copies() -> None:
    """At most one table in a thousand, by the level; 300 tables show that it is not one in fifty."""
    struck = 0
    for seed in range(300):
        runs = results(normal(4, 3 + seed % 6, 3 + seed % 2, seed=seed))
        struck += bool(repeats(runs).copies)
    assert struck <= 1


def test_variants_agree_by_chance_only_where_digits_are_few() -> None:
    for digits, expected in ((2, True), (6, False)):
        losses = normal(4, 3, digits)
        runs = results({**losses, "again": losses["v0"]})
        one, other = ([run for run in runs if run.variant == name] for name in ("v0", "again"))
        assert agrees_by_chance(one, other, runs) is expected


def test_slopes_of_printed_losses_are_no_copies_where_they_agree() -> None:
    """The two slopes are equal in every bit, since each loss is printed to three digits; the runs are not copies."""
    small = {"base": (2.513, 2.514, 2.516, 2.511), "mine": (2.413, 2.417, 2.416, 2.419)}
    large = {"base": (2.213, 2.214, 2.219, 2.217), "mine": (2.013, 2.011, 2.009, 2.014)}
    found = trend(
        [Size(name=n, parameters=p, results=results(x)) for n, p, x in (("s", 1.0, small), ("l", 2.0, large))],
        references=["base"],
    )
    assert len(found["mine"].versus["base"].by_seed) == 4
