"""`compare_pairs`: a family of chosen pairs is decided as `rank` decides its own, and its size is what the pairs are."""

import numpy as np
import pytest

from addnorm.errors import InputError, UnknownName
from addnorm.statistics import Result, compare_pairs, rank

LEVELS = {"a": 0.0, "b": -0.03, "c": -0.01, "d": 0.02, "e": 0.05}


def study(seeds: int = 5) -> list[Result]:
    rng = np.random.default_rng(3)
    return [
        Result(variant=name, seed=seed, loss=2.0 + level + 0.02 * np.sin(seed) + 0.006 * rng.normal())
        for name, level in LEVELS.items()
        for seed in range(seeds)
    ]


def test_all_pairs_with_one_reference_are_those_of_the_ranking() -> None:
    ranking = rank(study(), references=["a"])
    found = compare_pairs(study(), [(name, "a") for name in "bcde"])
    assert {pair: comparison.to_json() for pair, comparison in found.items()} == {
        (name, "a"): ranking[name].versus["a"].to_json() for name in "bcde"
    }


def test_a_pair_alone_has_the_same_noise_and_a_narrower_interval() -> None:
    among = rank(study(), references=["a", "c"])["b"].versus["c"]
    alone = compare_pairs(study(), [("b", "c")])["b", "c"]
    assert alone.difference == among.difference
    assert alone.standard_error == pytest.approx(among.standard_error, rel=0.2)
    assert alone.interval is not None
    assert among.interval is not None
    assert alone.interval[1] - alone.interval[0] < 0.9 * (among.interval[1] - among.interval[0])


def test_the_order_of_a_pair_is_the_sign_of_its_difference() -> None:
    there, back = compare_pairs(study(), [("b", "d")])["b", "d"], compare_pairs(study(), [("d", "b")])["d", "b"]
    assert (there.verdict, back.verdict) == ("better", "worse")
    assert there.difference == -(back.difference or 0.0)
    assert there.by_seed == {seed: -value for seed, value in back.by_seed.items()}


def test_each_pair_may_have_a_reference_of_its_own() -> None:
    found = compare_pairs(study(), [("b", "a"), ("e", "d")])
    assert {pair: comparison.verdict for pair, comparison in found.items()} == {
        ("b", "a"): "better",
        ("e", "d"): "worse",
    }


def test_wrong_pairs_are_told() -> None:
    with pytest.raises(InputError, match="at least one pair"):
        compare_pairs(study(), [])
    with pytest.raises(InputError, match="'a' with itself"):
        compare_pairs(study(), [("a", "a")])
    with pytest.raises(UnknownName, match="variant to be compared"):
        compare_pairs(study(), [("a", "z")])
