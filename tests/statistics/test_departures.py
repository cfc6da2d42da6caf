"""Learned numbers that depart over seeds from what weight decay alone would have left."""

import numpy as np
import pytest
from scipy import stats

from addnorm.statistics.departures import by_family, departures

pytestmark = pytest.mark.plain


def found(*numbers, directions=(), families=None, steps=0):
    finals = np.array(numbers, dtype=float).T
    names = families or ["a"] * len(numbers)
    return departures(finals, np.ones_like(finals), families=names, steps=steps, directions=directions)


def test_what_departed_the_same_way_in_every_seed_is_counted():
    result = found([2.0, 2.1, 1.9], [0.9, 1.1, 1.0], [1.0, 1.0, 1.0], [0.5, 0.5, 0.5])
    assert result.departed.tolist() == [True, False, False, True]
    assert result.mixed.tolist() == [False, True, False, False]


def test_two_seeds_are_not_tested():
    result = found([2.0, 2.1], [0.9, 1.1])
    assert result.departed is None
    assert result.mixed.tolist() == [False, True]


def test_the_same_rounding_in_every_seed_is_no_departure():
    left = float(np.float32(1 + 2e-7))
    assert found([left] * 3, [2.0, 2.1, 1.9], steps=100).departed.tolist() == [False, True]
    assert found([left] * 3, [2.0, 2.1, 1.9], steps=0).departed.tolist() == [True, True]


def test_a_shift_along_a_redundant_direction_is_no_departure():
    """Three weights of a softmax: seeds shift them together by any amount, and raise the first against the others."""
    shifts = np.array([3.0, -2.0, 5.0, 0.5])
    noise = np.array([0.01, -0.02, 0.0, 0.01])
    raised = (2.0 + shifts + noise, 1.0 + shifts - noise, 1.0 + shifts)
    assert found(*raised).departed.tolist() == [False, False, False]
    assert found(*raised).mixed.any()
    result = found(*raised, directions=[np.ones(3)])
    assert result.departed.tolist() == [True, True, True]
    assert not result.mixed.any()


def test_directions_of_one_family_and_of_two_are_counted_apart():
    families = ["a", "a", "b", "c"]
    directions = [np.array([1.0, 1.0, 0, 0]), np.array([1.0, 0, 2.0, 0])]
    result = found([2.0] * 3, [2.0] * 3, [2.0] * 3, [2.0] * 3, families=families)
    rows = {row.parameter: row for row in by_family(result, families, directions)}
    assert [(row.directions, row.shared_directions, row.shared_with) for row in rows.values()] == [
        (1, 1, ("b",)),
        (0, 1, ("a",)),
        (0, 0, ()),
    ]
    assert [row.departed for row in rows.values()] == [2, 1, 1]


def test_noise_alone_is_seldom_called_a_departure():
    """Holm keeps the chance of one false count or more in a family of twenty below 5 %; 3.3 standard errors above it."""
    noise, trials = np.random.default_rng(0), 400
    false = sum(bool(found(*noise.normal(1, 1, (20, 5))).departed.any()) for _ in range(trials))
    assert false <= stats.binom.ppf(0.9995, trials, 0.05)
    assert false > 0, "the test is not deaf"
