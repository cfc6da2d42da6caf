"""Runs that got stuck: which are called so, how often, and what the ranking says.

"Can be seen": at least five seeds and six variants, at least one run of the model stuck and one not, and a gap of at least 15
residual standard deviations. `benchmarks/instrument.py stuck` has the other cases.
"""

import numpy as np
import pytest

from addnorm.statistics import Result, rank
from addnorm.statistics.stuck_runs import stuck_cells

SIGMA = 0.002


def study(rng: np.random.Generator, variants: int, seeds: int) -> np.ndarray:
    return 2.5 + SIGMA * (3 * rng.normal(size=(1, seeds)) + rng.normal(size=(variants, seeds)))


def test_a_model_that_gets_stuck_in_a_tenth_of_its_runs_is_named_where_it_can_be_seen() -> None:
    rng = np.random.default_rng(1)
    named = right = seen = 0
    while seen < 200:
        lost = rng.random(5) < 0.1
        values = study(rng, 6, 5)
        values[2] += 30 * SIGMA * lost
        if not lost.any() or lost.all():
            continue
        seen += 1
        stuck, gaps = stuck_cells(values, np.ones((6, 5), bool))
        named += int(stuck.any())
        right += int((stuck[2] == lost).all() and not np.delete(stuck, 2, axis=0).any())
        assert (gaps > 0).tolist() == stuck.any(axis=-1).tolist()
    assert named >= 0.9 * seen
    assert right >= 0.9 * seen


@pytest.mark.parametrize("times", [1.0, 10.0])
def test_noise_alone_is_seldom_called_stuck(times: float) -> None:
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(200):
        values = study(rng, 8, 5)
        values[3] += times * SIGMA * rng.normal(size=5)
        found += int(stuck_cells(values, np.ones((8, 5), bool))[0].any())
    assert found <= 0.05 * 200


@pytest.mark.parametrize("variants", [2, 3, 6])
def test_two_groups_that_every_variant_has_are_named(variants: int) -> None:
    """As in tasks that are solved by a jump: the others' spread is as large as the gap, so each variant's own runs tell."""
    rng = np.random.default_rng(6)
    named = right = 0
    for _ in range(100):
        lost = rng.random((variants, 12)) < 0.5
        stuck, _ = stuck_cells(study(rng, variants, 12) + 100 * SIGMA * lost, np.ones((variants, 12), bool))
        named += int(stuck.any())
        right += int(not (stuck & ~lost).any())
    assert named >= 90
    assert right >= 90


def test_a_seed_that_is_hard_for_everybody_is_no_group() -> None:
    values = study(np.random.default_rng(7), 4, 12)
    values[:, [2, 5, 6]] += 100 * SIGMA
    assert not stuck_cells(values, np.ones((4, 12), bool))[0].any()


def test_equal_prints_are_no_groups() -> None:
    values = np.array([[2.50, 2.50, 2.51, 2.51, 2.51], [2.60, 2.61, 2.60, 2.60, 2.61]])
    assert not stuck_cells(values, np.ones((2, 5), bool))[0].any()


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize(("shift", "upper"), [(100, [4]), (-100, [0, 1, 2, 3, 5])])
def test_of_two_variants_the_gap_belongs_to_the_one_whose_losses_have_it(
    row: int, shift: int, upper: list[int]
) -> None:
    """Also where one run is far below: a typed or missing number, of which the other variant knows nothing."""
    values = study(np.random.default_rng(3), 2, 6)
    values[row, 4] += shift * SIGMA
    stuck, _ = stuck_cells(values, np.ones((2, 6), bool))
    assert np.argwhere(stuck).tolist() == [[row, seed] for seed in upper]


def test_a_stuck_run_at_a_seed_blames_no_other_variant_and_missing_cells_do_not_count() -> None:
    values = study(np.random.default_rng(4), 3, 6)
    present = np.ones((3, 6), bool)
    present[2, 5] = False
    values[2, 5] = np.nan
    values[0, [1, 3]] += 100 * SIGMA
    stuck, _ = stuck_cells(values, present)
    assert np.argwhere(stuck).tolist() == [[0, 1], [0, 3]]


def test_three_runs_say_nothing() -> None:
    values = study(np.random.default_rng(5), 6, 3)
    values[0, 1] += 1.0
    assert not stuck_cells(values, np.ones((6, 3), bool))[0].any()


def test_the_ranking_says_which_share_is_stuck_and_what_the_other_seeds_show() -> None:
    values = study(np.random.default_rng(6), 6, 5)
    values[4, 2] += 0.1
    results = [Result(variant=f"v{v}", seed=s, loss=float(values[v, s])) for v in range(6) for s in range(5)]
    ranking = rank(results, references=["v0"])
    (of,) = ranking.stuck
    assert (of.variant, of.seeds, of.runs) == ("v4", (2,), 5)
    # One of five: the exact 95 % interval of a share, as in any table of Clopper and Pearson's.
    assert of.share == pytest.approx((0.2, 0.00505, 0.71642), abs=1e-5)
    expected = float(np.delete(values[4] - values[0], 2).mean())
    assert of.unstuck["v0"] == pytest.approx(expected)
    codes = [note.note["code"] for note in ranking.warnings]
    assert [code for code in codes if "stuck" in code] == ["stuck", "unstuck"]
    assert ranking.to_json()["stuck"][0]["seeds"] == [2]
    assert not rank([run for run in results if run.seed != 2], references=["v0"]).stuck
