"""The sampling error of the held-out text: against its definition, its coverage over texts, and where it is told."""

import json
from dataclasses import replace

import numpy as np
import pytest

from addnorm.errors import InputError
from addnorm.statistics import Result, rank
from addnorm.statistics.pairs.text_error import text_error

PARTS = 32


def runs_of(name: str, by_seed: dict[int, np.ndarray], tokens: np.ndarray) -> list[Result]:
    return [
        Result(
            variant=name,
            seed=seed,
            loss=float(parts @ tokens / tokens.sum()),
            part_losses=tuple(parts.tolist()),
            part_tokens=tuple(tokens.tolist()),
        )
        for seed, parts in by_seed.items()
    ]


def test_it_is_the_jackknife_over_parts_of_equal_size() -> None:
    rng = np.random.default_rng(1)
    tokens = np.full(PARTS, 50)
    one, other = rng.normal(2, 0.3, (3, PARTS)), rng.normal(2, 0.3, (3, PARTS))
    found = text_error(runs_of("a", dict(enumerate(one)), tokens), runs_of("b", dict(enumerate(other)), tokens))
    # Leave one part out at a time: for a plain mean, the jackknife is exact.
    differences = (one - other).mean(axis=0)
    left_out = np.array([np.delete(differences, part).mean() for part in range(PARTS)])
    jackknife = np.sqrt((PARTS - 1) / PARTS * ((left_out - left_out.mean()) ** 2).sum())
    assert found == pytest.approx(jackknife, rel=1e-12)


def test_what_both_models_find_hard_cancels() -> None:
    rng = np.random.default_rng(2)
    tokens = rng.integers(40, 60, PARTS)
    hard = rng.normal(2, 1, PARTS)
    one, other = runs_of("a", {0: hard}, tokens), runs_of("b", {0: hard - 0.1}, tokens)
    assert text_error(one, other) == pytest.approx(0, abs=1e-12)


def test_two_standard_errors_hold_the_difference_on_all_text_in_95_of_100_texts() -> None:
    # Texts whose parts have other lengths, and in which long parts are harder: the ratio's case.
    rng = np.random.default_rng(3)
    inside = 0
    for _ in range(400):
        tokens = rng.integers(20, 80, 64)
        differences = 0.05 + 0.001 * (tokens - 50) + rng.normal(0, 0.2, 64)
        error = text_error(runs_of("a", {0: 2 + differences}, tokens), runs_of("b", {0: np.full(64, 2.0)}, tokens))
        assert error is not None
        mean = differences @ tokens / tokens.sum()
        # Expectation of the ratio: E[t d] / E[t] for t uniform on 20 … 79.
        every = np.arange(20, 80)
        truth = (every * (0.05 + 0.001 * (every - 50))).mean() / every.mean()
        inside += abs(mean - truth) < 1.998 * error
    assert 0.915 <= inside / 400 <= 0.98  # binomial: 0.95 +- 3 sd


def test_unknown_or_unlike_parts_give_none() -> None:
    tokens = np.full(PARTS, 10)
    known = runs_of("a", {0: np.full(PARTS, 2.0)}, tokens)
    assert text_error(known, [Result(variant="b", seed=0, loss=2.0)]) is None
    assert text_error(known, runs_of("b", {1: np.full(PARTS, 2.0)}, tokens)) is None
    assert text_error(known, runs_of("b", {0: np.full(PARTS, 2.0)}, 2 * tokens)) is None
    few = [replace(run, part_losses=(2.0,) * 4, part_tokens=(10,) * 4) for run in known]
    assert text_error(few, [replace(run, variant="b") for run in few]) is None


def test_unequal_lists_are_refused() -> None:
    with pytest.raises(InputError, match="expected as many part_losses as part_tokens, got 1 and 2"):
        Result(variant="a", seed=0, loss=2.0, part_losses=(2.0,), part_tokens=(1, 2))


@pytest.mark.parametrize(("spread", "told"), [(0.0001, False), (0.5, True)])
def test_a_ranking_gives_it_and_says_where_it_exceeds_the_seeds(spread: float, told: bool) -> None:
    rng = np.random.default_rng(4)
    tokens = np.full(PARTS, 100)
    shape = rng.normal(0, spread, PARTS)
    shape -= shape.mean()
    losses = {
        name: {seed: level + shape * own + 0.003 * rng.normal() for seed in range(5)}
        for name, level, own in (("base", 2.0, 0), ("fast", 1.9, 1))
    }
    results = [run for name, by_seed in losses.items() for run in runs_of(name, by_seed, tokens)]
    ranking = rank(results, references=["base"])
    comparison = ranking["fast"].versus["base"]
    assert comparison.verdict == "better"
    assert comparison.text_error is not None
    assert (comparison.text_error > (comparison.standard_error or 0)) == told
    assert json.loads(json.dumps(ranking.to_json()))["variants"][0]["versus"]["base"]["text_error"] > 0
    assert ("text_error" in [warning.note["code"] for warning in ranking.warnings]) == told
    plain = rank([replace(run, part_losses=(), part_tokens=()) for run in results], references=["base"])
    assert "text_error" not in plain.to_json()["variants"][0]["versus"]["base"]
    assert plain["fast"].versus["base"].interval == comparison.interval
