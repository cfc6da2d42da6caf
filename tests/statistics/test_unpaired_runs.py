"""Runs that share no seeds: groups of runs are compared, said aloud, with the stated error rates."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.stats import beta

import addnorm
from addnorm.cli import main
from addnorm.statistics import Result, rank
from addnorm.statistics.multiple_testing import Decisions, Evidence, Look, Rule
from addnorm.statistics.pairs.unpaired import unpaired_tests

# KellerJordan/modded-nanogpt, statistics.md of the records of 2026-05-20 and 2026-06-11: runs without seeds.
S1335 = (3.2843, 3.2855, 3.2834, 3.2883, 3.2835, 3.2858, 3.2827, 3.2852, 3.2842)
V1 = (3.27571, 3.27732, 3.27583, 3.27794, 3.27785, 3.27846, 3.27707, 3.27848, 3.27709, 3.27841, 3.27481)


def runs(groups: dict[str, tuple[float, ...]], apart: int = 1000) -> list[Result]:
    """Runs whose seeds begin at another thousand for every variant."""
    return [
        Result(variant=name, seed=apart * place + run, loss=loss)
        for place, (name, losses) in enumerate(groups.items())
        for run, loss in enumerate(losses)
    ]


def test_published_runs_give_the_published_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranking = rank(runs({"s1335": S1335, "v1": V1}), references=["s1335"])
    comparison = ranking["v1"].versus["s1335"]
    welch = stats.ttest_ind(V1, S1335, equal_var=False)
    assert comparison.verdict == "better"
    assert comparison.difference == pytest.approx(np.mean(V1) - np.mean(S1335))
    assert comparison.p is not None
    assert welch.pvalue <= comparison.p < 2 * welch.pvalue, "the floor can only make a claim harder"
    assert (comparison.seeds, comparison.by_seed) == (9, {})
    assert ranking.to_json()["unpaired"] is True
    assert "share no seeds" in " ".join(ranking.warnings)
    path = tmp_path / "runs.csv"
    path.write_text(
        "variant,seed,loss\n" + "".join(f"{r.variant},{r.seed},{r.loss}\n" for r in runs({"a": S1335, "b": V1})),
        encoding="utf-8",
    )
    assert main(["rank", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "better -7.6 [-9.0, -6.1]" in out
    assert "unpaired, Welch's test" in out


def test_without_the_floor_it_is_welchs_test() -> None:
    values, present = np.zeros((3, 12)), np.zeros((3, 12), bool)
    groups = np.random.default_rng(3).normal(size=(3, 4)) * np.array([[5.0], [1.0], [0.1]])
    for row in range(3):
        present[row, 4 * row : 4 * row + 4] = True
        values[row, 4 * row : 4 * row + 4] = groups[row]
    tests = unpaired_tests(values, present, np.array([[0, 1]]))
    welch = stats.ttest_ind(groups[0], groups[1], equal_var=False)
    assert tests.p_value[0] == pytest.approx(welch.pvalue)
    assert tests.df[0] == pytest.approx(welch.df)
    low, high = welch.confidence_interval(0.95)
    assert 2 * tests.half_width(0.95, 1)[0] == pytest.approx(high - low)


@pytest.mark.parametrize("shared", [0, 1, 2])
def test_fewer_shared_seeds_than_a_verdict_needs_are_as_none(shared: int) -> None:
    ranking = rank(runs({"a": S1335, "b": V1}, apart=9 - shared), references=["a"])
    assert ranking.unpaired
    assert ranking["b"].versus["a"].verdict == "better"


def test_enough_shared_seeds_are_paired_as_before() -> None:
    ranking = rank(runs({"a": S1335, "b": V1}, apart=6), references=["a"])
    assert not ranking.unpaired
    assert ranking["b"].versus["a"].seeds == 3
    assert "unpaired" not in ranking.to_json()


def test_seeds_that_have_yet_to_end_count_as_shared() -> None:
    """A study that trains its variants one after the other is compared at equal seeds once they have run."""
    open_runs = [Result(variant="b", seed=seed, state="queued") for seed in range(3)]
    later = [Result(variant="b", seed=3 + run, loss=loss) for run, loss in enumerate(V1[:3])]
    ranking = rank([*runs({"a": S1335[:3]}), *open_runs, *later], references=["a"])
    assert not ranking.unpaired
    assert ranking["b"].versus["a"].reason_code == "nothing_shared"


def test_three_runs_of_each_are_needed() -> None:
    ranking = rank(runs({"a": S1335, "b": V1[:2], "c": V1[2:5]}), references=["a"])
    assert ranking["c"].versus["a"].verdict == "better"
    comparison = ranking["b"].versus["a"]
    assert (comparison.verdict, comparison.reason_code) == (None, "few_runs")
    assert "one of the two has runs: 2, a verdict needs 3 of each" in str(comparison.reason)


def test_a_variant_that_diverged_is_not_better() -> None:
    lost = Result(variant="v1", seed=5000, state="diverged")
    ranking = rank([*runs({"s1335": S1335, "v1": V1}), lost], references=["s1335"])
    assert ranking["v1"].versus["s1335"].verdict == "failed"


def test_equivalence_and_another_margin() -> None:
    ranking = rank(runs({"s1335": S1335, "v1": V1}), references=["s1335"], margin=0.02)
    assert ranking["v1"].versus["s1335"].verdict == "equivalent"


def test_a_folder_that_is_higher_is_better(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    rows = [f"{r.variant},{r.seed},{-(r.loss or 0):.5f}\n" for r in runs({"a": S1335, "b": V1})]
    path.write_text("variant,seed,score\n" + "".join(rows), encoding="utf-8")
    ranking = addnorm.rank(path, columns={"loss": "score"}, direction="higher")
    assert ranking.unpaired
    assert ranking["b"].versus["a"].verdict == "better"
    assert (ranking["b"].versus["a"].difference or 0) > 0.007


MARGIN = 2.5
CELLS = 400_000
"""Losses of a simulation; few large tables, or many small ones."""
EVEN = {
    "two variants": ((3, 3), (1, 1)),
    "9 and 11 runs": ((9, 11), (1, 1)),
    "six variants": ((3,) * 6, (1,) * 6),
    "eighteen variants": ((5,) * 18, (1,) * 18),
    "3 and 10 runs": ((3, 10), (1, 1)),
}
UNEVEN = {
    "the smaller group noisier": ((3, 10), (3, 1)),
    "the larger group noisier": ((3, 10), (1, 3)),
    "five times": ((3, 3), (5, 1)),
    "4 and 7 runs": ((4, 7), (4, 1)),
    "16 to 1": ((3,) * 18, tuple(np.geomspace(0.25, 4, 18))),
    "many sizes": ((3, 4, 10, 3, 8, 20), (3, 1, 1, 1, 2, 0.5)),
}


def false_families(
    sizes: tuple[int, ...], noise: tuple[float, ...], effect: np.ndarray, tables: int
) -> tuple[float, float]:
    """Upper end of a 99.9 % interval of the rate of any false claim, and of any interval that misses the truth."""
    present = np.zeros((len(sizes), sum(sizes)), bool)
    for row, (size, end) in enumerate(zip(sizes, np.cumsum(sizes), strict=True)):
        present[row, end - size : end] = True
    rng = np.random.default_rng(len(sizes))
    values = effect[:, None] + np.array(noise)[:, None] * rng.normal(size=(tables, *present.shape))
    pairs = np.array([(0, other) for other in range(1, len(sizes))])
    rule = Rule(family=len(pairs), confidence=0.95, margin=MARGIN)
    look = Look(seeds=np.ones(present.shape[1], bool), planned=(3,), place=0)
    found: Decisions = Evidence.of(unpaired_tests(values, present, pairs), look, rule).decisions(rule)
    true = effect[pairs[:, 0]] - effect[pairs[:, 1]]
    wrong = (found.claimed != 0) & (found.claimed != np.sign(true))
    wrong |= found.equivalent & (np.abs(true) >= MARGIN)
    missed = (found.interval[..., 0] > true) | (found.interval[..., 1] < true)
    counts = [int(each.any(axis=-1).sum()) for each in (wrong, missed)]
    upper = [float(beta.ppf(0.999, count + 1, tables - count)) for count in counts]
    return upper[0], upper[1]


@pytest.mark.parametrize("name", EVEN)
def test_even_noise_gives_at_most_five_per_cent_false_families_of_unpaired_runs(name: str) -> None:
    sizes, noise = EVEN[name]
    # 4.5 % at 9 and 11 runs: so near the bound, it takes many tables to exclude a rate above it.
    tables = 80_000 if name == "9 and 11 runs" else CELLS // (len(sizes) * sum(sizes))
    for effect in (np.zeros(len(sizes)), MARGIN * (np.arange(len(sizes)) % 2)):
        assert max(false_families(sizes, noise, effect, tables)) < 0.05


@pytest.mark.parametrize("name", UNEVEN)
def test_uneven_noise_gives_at_most_ten_per_cent_false_families_of_unpaired_runs(name: str) -> None:
    sizes, noise = UNEVEN[name]
    for effect in (np.zeros(len(sizes)), MARGIN * (np.arange(len(sizes)) % 2)):
        assert max(false_families(sizes, noise, effect, CELLS // (len(sizes) * sum(sizes)))) < 0.10
