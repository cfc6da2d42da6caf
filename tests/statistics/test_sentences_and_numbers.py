"""What a ranking says in words and in second numbers is what was computed: sizes, signs, means, batches, looks."""

import re

import numpy as np
import pytest
from scipy import stats

from addnorm.errors import InputError
from addnorm.statistics import Ranking, Result, rank
from addnorm.statistics.conclusion import conclusion
from addnorm.statistics.effects.posterior import posteriors
from addnorm.statistics.measure import measure_of
from addnorm.statistics.replication import found_pairs
from addnorm.statistics.rules import SizeLosses, check_rule, read_rule, shipped_rules
from addnorm.statistics.run_noise import run_noise
from addnorm.statistics.seeds_in_stages import SeedsInStages
from addnorm.statistics.trend import Size, trend
from addnorm.words import phrases


def study(levels: dict[str, float], seeds: int = 4, sd: float = 0.002, seed: int = 0) -> list[Result]:
    rng = np.random.default_rng(seed)
    return [
        Result(variant=v, seed=s, loss=float(m + sd * rng.normal())) for v, m in levels.items() for s in range(seeds)
    ]


def codes(ranking: Ranking) -> list[str]:
    return [str(note.note.get("code")) for note in ranking.warnings]


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_no_verdict_is_found_again_before_the_whole_second_batch_has_ended(ended: int) -> None:
    """With one of three runs of `b` ended, `a` would be tested in a family without `b`: a look on the way."""
    levels = {"base": 2.5, "a": 2.4, "b": 2.42}
    first, second = study(levels, 5, 0.004), (10, 11, 12)
    later = [
        Result(variant=v, seed=s, loss=m) if v != "b" or place < ended else Result(variant=v, seed=s, state="running")
        for v, m in levels.items()
        for place, s in enumerate(second)
    ]
    ranking = rank([*first, *later], references=["base"], second=second)
    pairs = found_pairs({row.variant: row.versus for row in ranking.variants})
    assert len(pairs) == 2
    again = [ranking[name].versus[other].again for name, other in pairs]
    assert {each.state for each in again if each is not None} == {"found"}


def test_each_reference_has_its_own_size_and_interval_in_words() -> None:
    ranking = rank(study({"a": 2.50, "b": 2.42, "new": 2.40}), references=["a", "b"])
    _, found, _ = conclusion(ranking)
    for other in ("a", "b"):
        comparison = ranking["new"].versus[other]
        assert comparison.difference is not None
        assert comparison.interval is not None
        low, high = sorted(abs(end) for end in comparison.interval)
        size = abs(comparison.difference)
        assert f"new is better than {other} by {size:.3f} nats per token ({low:.3f} to {high:.3f})" in found
    assert "a and b" not in found


def test_a_difference_below_a_thousandth_is_not_printed_as_zero() -> None:
    ranking = rank(study({"base": 2.5, "new": 2.4996}, 6, 1e-6), references=["base"], margin=1e-4)
    _, found, _ = conclusion(ranking)
    printed = [float(number) for number in re.findall(r"0\.\d+", found)]
    assert len(printed) == 3
    assert min(printed) > 0.00039
    assert " nats per token (" in found
    assert "nat（每个 token）" in (phrases("zh").note(found.note) or "")


def test_notes_on_a_score_have_the_sign_of_the_score() -> None:
    rng = np.random.default_rng(0)
    score = {name: level + 0.002 * rng.normal(size=8) for name, level in (("base", 0.8), ("c", 0.86), ("d", 0.85))}
    gets = 0.84 + 0.002 * rng.normal(size=8)
    gets[[2, 5]] = 0.3
    rows = {**score, "gets": gets}
    results = [Result(variant=v, seed=s, loss=float(x)) for v, row in rows.items() for s, x in enumerate(row)]
    ranking = rank(results, references=["base"], measure=measure_of("acc", "higher"))
    expected = np.delete(gets - score["base"], [2, 5]).mean()
    (note,) = [note for note in ranking.warnings if note.note["code"] == "unstuck"]
    assert f"differs by {expected:+.4g} from base" in note
    (event,) = [note for note in ranking.warnings if note.note["code"].startswith("one_sample")]
    assert "better than base" in event
    assert "Should these lie low by chance" in event


def test_means_over_different_seeds_in_another_order_are_named() -> None:
    rng = np.random.default_rng(0)
    runs = [
        Result(variant=v, seed=s, loss=float(m + 0.1 * s + 0.001 * rng.normal()))
        for v, m, seeds in (("a", 2.50, 4), ("b", 2.51, 3), ("c", 2.60, 4))
        for s in range(seeds)
    ]
    ranking = rank(runs, references=["a"])
    assert [row.variant for row in ranking.variants] == ["a", "b", "c"]
    (note,) = [note for note in ranking.warnings if note.note["code"] == "adjusted"]
    for name in ("a", "b"):
        assert f"{name} {ranking[name].adjusted_mean:.4f} adjusted, {ranking[name].mean:.4f} over its own" in note
    assert "c 2." not in note
    even = [run for run in runs if run.seed < 3]
    assert "adjusted" not in codes(rank(even, references=["a"]))


def test_a_verdict_on_two_references_is_noted_once() -> None:
    rng = np.random.default_rng(0)

    def run(variant: str, seed: int, loss: float) -> Result:
        parts = tuple(loss + 0.2 * rng.normal() for _ in range(8))
        return Result(variant=variant, seed=seed, loss=loss, part_losses=parts, part_tokens=(10,) * 8)

    runs = [run(v, s, m + 0.001 * rng.normal()) for v, m in {"a": 2.5, "b": 2.4, "c": 2.3}.items() for s in range(4)]
    (note,) = [w for w in rank(runs, references=["a", "b"]).warnings if w.note["code"] == "text_error"]
    pairs = re.findall(r"(\w)–(\w) \(", note)
    assert sorted(map(sorted, pairs)) == [["a", "b"], ["a", "c"], ["b", "c"]]


def test_a_study_in_stages_has_the_posterior_of_its_newest_look() -> None:
    design = SeedsInStages.planned((0, 1, 2), 20)
    count = next(look for look in design.looks if look > 3)
    rng = np.random.default_rng(3)
    losses = {name: 2.5 + level + 0.006 * rng.normal(size=count) for name, level in (("base", 0), ("v", -0.006))}
    runs = [Result(variant=v, seed=s, loss=float(x)) for v, row in losses.items() for s, x in enumerate(row)]
    posterior = posteriors(rank(runs, references=["base"], design=design))["v", "base"]
    difference = losses["v"] - losses["base"]
    error = difference.std(ddof=1) / count**0.5
    assert posterior.better == pytest.approx(stats.t.cdf((-0.005 - difference.mean()) / error, count - 1), rel=1e-4)


@pytest.mark.thorough
def test_looking_again_narrows_no_more_rank_intervals_than_looking_once() -> None:
    """Of studies without a difference: 15 % narrowed one at some look when every look had the whole level."""
    design, studies = SeedsInStages.planned((0, 1, 2), 20), 120
    narrowed = 0
    for place in range(studies):
        runs = study(dict.fromkeys(("base", "a", "b"), 2.5), 20, 0.01, seed=place)
        at = (rank([r for r in runs if r.seed < look], references=["base"], design=design) for look in design.looks)
        narrowed += any(row.rank_interval != (1, 3) for ranking in at for row in ranking.variants)
    assert narrowed <= stats.binom.ppf(0.999, studies, 0.05)


@pytest.mark.parametrize("seed", [1, 4, 7])
def test_runs_of_an_unfinished_stage_change_no_rank_interval(seed: int) -> None:
    design = SeedsInStages.planned((0, 1, 2), 20)
    complete = design.looks[0]
    runs = study({"base": 2.5, "a": 2.49, "b": 2.48}, complete + 1, 0.006, seed)
    alone = rank([run for run in runs if run.seed < complete], references=["base"], design=design)
    begun = rank(runs[:-1], references=["base"], design=design)
    assert {r.variant: r.rank_interval for r in begun.variants} == {r.variant: r.rank_interval for r in alone.variants}


def test_no_variant_passes_a_rule_by_a_reference_that_diverged() -> None:
    worse, reference = np.array([3.40, 3.41, 3.39, 3.40]), np.array([3.30, 3.29, 3.31, np.inf])
    compared = [
        rule for rule in map(read_rule, shipped_rules()) if rule.compares and not rule.conditions[0].several_sizes
    ]
    assert compared
    for rule in compared:
        losses = [SizeLosses(size="", variant=np.resize(worse, max(rule.runs, 4)), reference=reference)]
        with pytest.raises(InputError, match="diverged"):
            check_rule(rule, losses, tables=1000)


def test_a_variant_that_diverged_has_no_mean_under_a_rule() -> None:
    rule = next(rule for rule in map(read_rule, shipped_rules()) if not rule.compares)
    losses = np.full(max(rule.runs, 4), 3.0)
    losses[1] = np.inf
    checked = check_rule(rule, [SizeLosses(size="", variant=losses)], tables=1000)
    assert (checked.verdict, checked.mean) == ("fails", (None,))


@pytest.mark.parametrize("state", ["failed", "running", "queued", "interrupted", "blocked"])
def test_noise_without_some_runs_says_so(state: str) -> None:
    runs = [*study({"a": 2.5, "b": 2.4}, 3, 0.01), Result(variant="b", seed=3, state=state)]
    assert "noise_of_finished" in [note.note["code"] for note in run_noise([("x", runs)]).warnings]


def test_a_trend_warns_of_what_limits_its_slopes() -> None:
    rng = np.random.default_rng(0)

    def size(name: str, parameters: float, grown: int, shift: int = 0) -> Size:
        runs = [
            Result(
                variant=v,
                seed=s + (shift if v == "a" else 0),
                loss=float(m - 0.3 * grown + 0.002 * rng.normal() + (0.5 if v == "b" and s == 5 and grown else 0)),
            )
            for v, m in {"base": 2.5, "a": 2.45, "b": 2.40}.items()
            for s in range(6)
        ]
        return Size(name=name, parameters=parameters, results=runs)

    warned = trend([size("s", 1e6, 0), size("l", 4e6, 1)], references=["base"]).warnings
    assert any("two groups of runs: 1 of 6 runs of b" in warning for warning in warned)
    unpaired = trend([size("s", 1e6, 0, 10), size("l", 4e6, 1, 10)], references=["base"], left_out=["b"]).warnings
    assert any(warning.startswith("the variants share no seeds") for warning in unpaired)
