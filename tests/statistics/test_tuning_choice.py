"""Choice of a point, its edges, and points that are as good within noise; and what choosing on compared seeds costs."""

from collections.abc import Mapping

import numpy as np
import pytest

from addnorm.statistics import Result
from addnorm.statistics.multiple_testing import decide
from addnorm.statistics.tuning import TunedVariant, tuning_outcome


def tuned(losses: Mapping[str, list[float | None]], rates: Mapping[str, object] | None = None) -> TunedVariant:
    """One variant with points `v, NAME`; None is a failed run."""
    results = [
        Result(variant=f"v, {name}", seed=seed, loss=loss, state="finished" if loss is not None else "failed")
        for name, row in losses.items()
        for seed, loss in enumerate(row)
    ]
    values = {f"v, {name}": {"rate": (rates or {}).get(name, place)} for place, name in enumerate(losses)}
    seeds = range(max(map(len, losses.values())))
    return tuning_outcome(results, {"v": values}, seeds).variants[0]


def test_the_lowest_mean_is_chosen_and_the_first_of_equals() -> None:
    assert tuned({"a": [2.0, 2.2], "b": [2.0, 2.1], "c": [2.1, 2.0]}).chosen == "v, b"
    assert tuned({"a": [2.0], "b": [1.9]}).chosen == "v, b"


def test_a_point_that_lost_a_run_gives_way_to_one_that_did_not() -> None:
    assert tuned({"a": [1.0, None], "b": [2.0, 2.1]}).chosen == "v, b"
    assert tuned({"a": [None, None], "b": [None, 1.0]}).chosen == "v, b"
    assert tuned({"a": [None, None], "b": [None, None]}).chosen == "v, a"


def test_nothing_is_chosen_before_every_run_has_ended() -> None:
    values = {"v": {"v, a": {"rate": 1}, "v, b": {"rate": 2}}}
    results = [Result(variant="v, a", seed=0, loss=1.0), Result(variant="v, b", seed=0, state="running")]
    outcome = tuning_outcome(results, values, [0])
    assert (outcome.is_complete, outcome.variants[0].chosen, outcome.variants[0].flat) == (False, None, None)


@pytest.mark.parametrize(
    ("losses", "ends"),
    [([1.0, 2.0, 3.0], ["lowest"]), ([3.0, 2.0, 1.0], ["highest"]), ([2.0, 1.0, 3.0], [])],
)
def test_the_edge_is_that_of_the_values_not_of_their_order(losses: list[float], ends: list[str]) -> None:
    by_rate = dict(zip(("b", "a", "c"), (losses[1], losses[0], losses[2]), strict=True))
    found = tuned({name: [loss] for name, loss in by_rate.items()}, {"a": 1e-3, "b": 3e-3, "c": 1e-2})
    assert [edge.end for edge in found.edges] == ends


def test_values_that_are_no_numbers_have_no_edge() -> None:
    assert tuned({"a": [1.0], "b": [2.0]}, {"a": {"kind": "add"}, "b": {"kind": "scale"}}).edges == ()
    assert tuned({"a": [1.0], "b": [2.0]}, {"a": True, "b": False}).edges == ()


def test_flat_is_what_noise_cannot_tell_apart() -> None:
    # Residual sd 0.05 on 4 degrees of freedom: c = t(0.975) = 2.78, times 0.05 sqrt(2 / 3) = 0.113.
    noise = [[0.05, -0.05, 0.0], [-0.05, 0.0, 0.05], [0.0, 0.05, -0.05]]
    near = {
        name: [level + each for each in row] for name, level, row in zip("abc", (2.0, 2.1, 2.05), noise, strict=True)
    }
    assert tuned(near).flat is True
    far = {**near, "b": [2.2 + each for each in noise[1]]}
    found = tuned(far)
    assert found.flat is False
    assert [point.as_good for point in found.points] == [True, False, True]
    assert tuned({**near, "b": [None, 2.0, 2.0]}).flat is False
    assert tuned({name: row[:1] for name, row in near.items()}).flat is None


def test_choosing_on_the_compared_seeds_favours_who_chooses_and_fresh_seeds_do_not() -> None:
    """The best of 5 equal rates against one: the mean of the best of 5 normal numbers is 1.163 sd below theirs."""
    tables, seeds = 4000, 5
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(tables, 1, seeds))
    rates, fresh = (rng.normal(size=(tables, 5, seeds)) for _ in range(2))
    chosen = rates.mean(axis=-1).argmin(axis=-1)[:, None, None]
    bias = {}
    for name, values in (("same", rates), ("fresh", fresh)):
        compared = np.concatenate([reference, np.take_along_axis(values, chosen, axis=1)], axis=1)
        present = np.ones((2, seeds), bool)
        found = decide(compared, present, np.array([(1, 0)]), np.array([0]), family=1, confidence=0.95, margin=1e-9)
        bias[name] = (-float(found.tests.difference.mean()), float((found.claimed != 0).mean()))
    spread = 4 * np.sqrt(2 / seeds / tables)
    assert bias["same"][0] == pytest.approx(1.163 / np.sqrt(seeds), abs=spread)
    assert bias["fresh"][0] == pytest.approx(0.0, abs=spread)
    assert bias["fresh"][1] < 0.0644 < bias["same"][1]  # 5 % and four standard errors of it: 1.4 %
