"""`compare_pairs`: a family of chosen pairs is decided as `rank` decides its own, and its size is what the pairs are."""

import numpy as np
import pytest
from scipy.stats import beta

from addnorm.errors import InputError, UnknownName
from addnorm.statistics import Result, compare_pairs, rank
from addnorm.statistics.conclusion import conclusion
from addnorm.statistics.multiple_testing import holm
from addnorm.statistics.pairs.paired_tests import paired_tests

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


def grid(seeds: int = 4, depths: int = 2) -> tuple[list[Result], list[str], list[tuple[str, str]]]:
    """A grid of depth × alpha with its references and its pairs at equal depth."""
    rng = np.random.default_rng(0)
    references = [f"base, depth {depth}" for depth in range(1, depths + 1)]
    names = [
        *references,
        *(f"scaled, {name.partition(', ')[2]}, alpha {alpha}" for name in references for alpha in (1, 2)),
    ]
    level = {name: 0.3 * ("depth 1" in name) + 0.02 * ("alpha 1" in name) for name in names}
    results = [
        Result(variant=name, seed=seed, loss=2.0 + level[name] + 0.004 * rng.normal())
        for name in names
        for seed in range(seeds)
    ]
    pairs = [(name, f"base, {name.split(', ')[1]}") for name in names if name not in references]
    return results, references, pairs


def test_holm_pays_for_the_chosen_pairs_alone() -> None:
    results, references, pairs = grid()
    every, chosen = rank(results, references=references), rank(results, references=references, pairs=pairs)
    assert (every.family, chosen.family) == (9, 4)
    found = {(row.variant, other): c for row in chosen.variants for other, c in row.versus.items()}
    assert set(found) == set(pairs)
    # Holm by hand: the k-th smallest of m p values times m - k + 1, never below the one before it.
    rows = sorted({result.variant: 0 for result in results})
    losses = np.array([[r.loss for r in results if r.variant == name] for name in rows], float)
    places = np.array([[rows.index(name), rows.index(other)] for name, other in pairs])
    tests = paired_tests(
        losses, np.ones(losses.shape, bool), places, np.array([rows.index(each) for each in references])
    )
    adjusted, least = {}, 0.0
    for step, place in enumerate(np.argsort(tests.p_value)):
        least = max(least, min(1.0, float((4 - step) * tests.p_value[place])))
        adjusted[pairs[place]] = least
    assert {pair: comparison.p for pair, comparison in found.items()} == pytest.approx(adjusted)
    for name, other in pairs:
        ends, wider = found[name, other].interval, every[name].versus[other].interval
        assert ends is not None
        assert wider is not None
        assert ends[1] - ends[0] < wider[1] - wider[0]


def test_the_chosen_pairs_are_those_of_compare_pairs_and_what_is_said_of_them() -> None:
    results, references, pairs = grid()
    ranking = rank(results, references=references, pairs=pairs)
    alone = compare_pairs(results, pairs)
    for (name, other), comparison in alone.items():
        assert ranking[name].versus[other].to_json() == comparison.to_json()
    assert ranking.to_json()["pairs"] == [list(pair) for pair in pairs]
    assert "pairs" not in rank(results, references=references).to_json()
    codes = [warning.note["code"] for warning in ranking.warnings]
    assert codes[0] == "chosen_pairs"
    assert str(ranking.warnings[0]).startswith("4 of 9 comparisons")
    # References that were not compared with each other are not said to be level, and no tier names one that was not compared.
    assert "references_level" not in codes
    assert ranking["scaled, depth 2, alpha 1"].tier.label == "below base, depth 2"
    said = " ".join(map(str, conclusion(ranking)))
    assert "scaled · depth 2 · alpha 1 is worse than base · depth 2 by" in said
    assert "Open: 2 of 4 comparisons" in said


def test_a_pair_is_left_out_with_its_variant_and_a_variant_in_no_pair_is_named() -> None:
    results, references, pairs = grid()
    less = rank(results, references=references, pairs=pairs, left_out=["scaled, depth 1, alpha 1"])
    assert less.family == 3
    none = rank(results, references=references, pairs=pairs[:2])
    assert none.family == 2
    (alone,) = (str(each) for each in none.warnings if each.note["code"] == "not_compared")
    assert set(alone.split(": ")[-1].rstrip(".").split(", ")) == {
        "base · depth 2",
        "scaled · depth 2 · alpha 1",
        "scaled · depth 2 · alpha 2",
    }
    assert none["scaled, depth 2, alpha 1"].versus == {}
    with pytest.raises(InputError, match="expected a reference as the second"):
        rank(results, references=references, pairs=[(references[0], pairs[0][0])])


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize(("noise", "bound"), [(1.0, 0.05), (3.0, 0.10)], ids=["even noise", "noisy references"])
def test_the_error_rate_of_chosen_pairs_is_that_of_all_pairs(seeds: int, noise: float, bound: float) -> None:
    """Four depths of large differences, at each a reference and three points that equal it, or differ by ten sigmas.

    The bounds are those of test_statistics_simulation.py.
    """
    depths, points, tables, sigma = 4, 3, 2000, 0.002
    rng = np.random.default_rng(seeds)
    apart = np.zeros((depths, 1 + points))
    apart[:, -1] = 10.0
    effect = (apart + 200 * np.arange(depths)[:, None]).ravel()
    spread = np.ones((depths, 1 + points))
    spread[:, 0] = noise
    drawn = spread.reshape(-1, 1) * rng.normal(size=(tables, effect.size, seeds))
    values = 2.5 + sigma * (effect[:, None] + 3 * rng.normal(size=(tables, 1, seeds)) + drawn)
    bases = np.arange(depths) * (1 + points)
    pairs = np.array([(base, base + point) for base in bases for point in range(1, points + 1)])
    true = effect[pairs[:, 0]] - effect[pairs[:, 1]]
    tests = paired_tests(values, np.ones(values.shape[1:], bool), pairs, bases)
    claimed = np.where(holm(tests.p_value, len(pairs)) <= 0.05, np.sign(tests.difference), 0.0)
    false = ((claimed != 0) & (claimed != np.sign(true))).any(axis=-1)
    assert beta.ppf(0.999, false.sum() + 1, tables - false.sum()) < bound
    if noise == 1.0:
        found = (claimed == np.sign(true)) & (true != 0)
        assert found[:, true != 0].mean() > (0.6 if seeds == 3 else 0.99), "a family of chosen pairs keeps its power"
