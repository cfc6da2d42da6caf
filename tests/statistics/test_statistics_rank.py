"""What `rank` says about small, hand-made studies."""

import json
import subprocess
import sys

import numpy as np
import pytest
from seeded_results import study

from addnorm.statistics import Result, rank
from addnorm.statistics.conclusion import conclusion


def test_verdicts_order_and_tiers() -> None:
    ranking = rank(study(), references=["base"])
    assert [row.variant for row in ranking.variants] == ["good", "base", "twin", "bad"]
    assert {row.variant: row.versus["base"].verdict for row in ranking.variants if row.versus} == {
        "good": "better",
        "twin": "equivalent",
        "bad": "worse",
    }
    assert ranking["good"].tier.label == "above base"
    assert ranking["good"].tier.firm
    assert ranking["twin"].tier.label == "level with base"
    assert not ranking["twin"].tier.firm
    assert ranking["bad"].tier.gaps == (1,)
    assert ranking["base"].tier.label == "reference"
    assert ranking["good"].rank_interval == (1, 1)
    assert ranking["twin"].rank_interval == ranking["base"].rank_interval == (2, 3)
    assert not ranking.provisional
    assert ranking.warnings == ()


def test_json_has_the_documented_shape() -> None:
    ranking = rank(study(), references=["base"]).to_json()
    assert {"metric", "margin", "provisional", "references", "variants", "warnings"} <= ranking.keys()
    row = ranking["variants"][0]
    assert {"variant", "seeds", "mean", "interval", "accuracy", "tier", "rank_interval", "versus"} <= row.keys()
    assert {"verdict", "difference", "interval", "seeds_needed"} <= row["versus"]["base"].keys()
    assert json.loads(json.dumps(ranking, allow_nan=False)) == ranking


@pytest.mark.parametrize("seeds", [1, 2])
def test_under_three_seeds_there_are_values_and_no_verdict(seeds: int) -> None:
    ranking = rank(study(seeds), references=["base"])
    comparison = ranking["good"].versus["base"]
    assert comparison.verdict is None
    assert comparison.difference == pytest.approx(-0.05)
    assert comparison.interval is None
    assert comparison.reason is not None
    assert "a verdict needs 3" in comparison.reason
    assert ranking["good"].rank_interval == (1, 4)
    assert ranking["good"].tier.label == "open"
    assert any("the order as listed is not supported" in warning for warning in ranking.warnings)


def test_two_seeds_measure_noise_enough_to_plan_with() -> None:
    planned = rank(study(2), references=["base"])["bad"].versus["base"]
    assert planned.seeds_needed is not None
    assert planned.seeds_needed >= 3
    assert rank(study(1), references=["base"])["bad"].versus["base"].seeds_needed is None


def test_undecided_says_how_many_seeds_would_decide() -> None:
    levels = {"base": 0.0, "close": 0.012, "other": 0.2}
    comparison = rank(study(3, levels, noise=0.01), references=["base"])["close"].versus["base"]
    assert comparison.verdict == "undecided"
    assert comparison.seeds_needed is not None
    assert comparison.seeds_needed > 3
    assert comparison.seeds_needed_for in ("difference", "equivalence")


def test_the_margin_decides_between_equivalent_and_different() -> None:
    levels = {"base": 0.0, "a": 0.003, "b": 0.2, "c": -0.1}
    wide = rank(study(6, levels, noise=0.0002), references=["base"], margin=0.005)["a"].versus["base"]
    narrow = rank(study(6, levels, noise=0.0002), references=["base"], margin=0.001)["a"].versus["base"]
    assert wide.verdict == "equivalent"
    assert wide.reason == "certainly higher, by less than the margin"
    assert narrow.verdict == "worse"


def test_references_mirror_each_other_and_share_one_test() -> None:
    ranking = rank(study(), references=["base", "good"])
    there, back = ranking["good"].versus["base"], ranking["base"].versus["good"]
    assert (there.verdict, back.verdict) == ("better", "worse")
    assert there.difference == -(back.difference or 0)
    assert there.interval is not None
    assert back.interval == (-there.interval[1], -there.interval[0])
    assert there.p == back.p
    assert ranking.family == 3 + 2


def test_references_that_cannot_be_told_apart_are_one_line() -> None:
    ranking = rank(study(), references=["base", "twin", "good"])
    assert ranking.lines == (("good",), ("base", "twin"))
    assert ranking["bad"].tier.label == "below base / twin"
    assert any("base and twin cannot be told apart" in warning for warning in ranking.warnings)


def test_no_references_still_give_ranks() -> None:
    ranking = rank(study())
    assert ranking["good"].versus == {}
    assert ranking["bad"].rank_interval == (4, 4)


def test_missing_seeds_do_not_pass_for_a_better_variant() -> None:
    """`bad` ran on the easy seeds only: its plain mean is lower, its level at equal seeds is not."""
    easy, hard = {0: 0.0, 1: 0.0, 2: 0.001}, {3: 1.0, 4: 1.1}
    rng = np.random.default_rng(3)
    results = [
        Result(variant=name, seed=seed, loss=2.5 + level + shift + 0.001 * rng.normal())
        for name, level in {"base": 0.0, "bad": 0.05, "c": 0.01}.items()
        for seed, shift in (easy | hard).items()
        if name != "bad" or seed in easy
    ]
    ranking = rank(results, references=["base"])
    assert (ranking["bad"].mean or 0) < (ranking["base"].mean or 0)
    assert ranking.variants[-1].variant == "bad"
    assert ranking["bad"].versus["base"].verdict == "worse"
    assert ranking["bad"].versus["base"].seeds == 3


def test_accuracy_that_disagrees_with_loss_is_flagged() -> None:
    accuracy = {"base": 0.5, "good": 0.49, "bad": 0.48, "twin": 0.5}
    results = [Result(**{**vars(r), "accuracy": accuracy[r.variant]}) for r in study()]
    ranking = rank(results, references=["base"])
    assert ranking["good"].versus["base"].accuracy_agrees is False
    assert ranking["bad"].versus["base"].accuracy_agrees is True
    assert [w for w in ranking.warnings if "disagree" in w] == [
        f"accuracy and loss disagree on good against base: loss {ranking['good'].versus['base'].difference:+.4f}, "
        "accuracy -1.00 points."
    ]


def test_differences_without_any_noise_are_not_judged() -> None:
    results = [
        Result(variant=name, seed=seed, loss=2.5 + level + 0.25 * seed)
        for name, level in {"a": 0.0, "b": 0.125}.items()
        for seed in range(4)
    ]
    comparison = rank(results, references=["a"])["b"].versus["a"]
    assert comparison.verdict is None
    assert comparison.reason is not None
    assert "its noise cannot be estimated" in comparison.reason


def test_unequal_variances_are_reported() -> None:
    levels = {f"v{i}": 0.0 for i in range(8)}
    results = study(5, levels)
    rng = np.random.default_rng(0)
    noisy = [
        Result(variant="v7", seed=r.seed, loss=2.5 + 0.2 * rng.normal()) if r.variant == "v7" else r for r in results
    ]
    even = rank(results, references=["v0"])
    assert even.noise_even
    assert even.set_apart == ()
    ranking = rank(noisy, references=["v0"])
    assert ranking.noise_even, "of the others"
    assert ranking.set_apart == ("v7",)
    assert ranking.to_json()["noise"]["set_apart"] == ["v7"]
    assert any("far noisier than the rest: v7" in w for w in ranking.warnings)
    assert ranking["v1"].versus["v0"].standard_error == pytest.approx(even["v1"].versus["v0"].standard_error, rel=0.2)


def test_noise_of_a_wide_range_is_reported_beside_what_is_set_apart() -> None:
    levels = {f"v{i}": 0.0 for i in range(8)}
    found = []
    for draw in range(20):
        rng = np.random.default_rng(draw)
        spread = [
            Result(variant=r.variant, seed=r.seed, loss=2.5 + 0.001 * 3.0 ** int(r.variant[1]) * rng.normal())
            for r in study(5, levels)
        ]
        ranking = rank(spread, references=["v0"])
        said = [note for note in ranking.warnings if note.note["code"] == "uneven"]
        assert bool(said) == (not ranking.noise_even)
        found += [note.note["values"]["noisy"] not in ranking.set_apart for note in said]
    assert len(found) > 5
    assert all(found)


def test_importing_the_room_loads_neither_torch_nor_scipy_stats() -> None:
    code = "import addnorm.statistics, sys; print([m for m in ('torch', 'scipy.stats') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("side", "verdict", "end"), [(1.0, "worse", 0), (-1.0, "better", 1)])
def test_a_later_step_of_holm_claims_a_direction_and_its_interval_ends_at_zero(
    side: float, verdict: str, end: int
) -> None:
    """2.5 standard errors pass Holm's last step (2.0) and not its first (3.0): nine larger differences come before."""
    levels = {"base": 0.0, "close": 0.0} | {f"far{i}": 1.0 + i for i in range(9)}
    error = rank(study(4, levels), references=["base"], margin=1e-6)["close"].versus["base"].standard_error
    assert error is not None
    levels["close"] = side * 2.5 * error
    comparison = rank(study(4, levels), references=["base"], margin=1e-6)["close"].versus["base"]
    assert comparison.verdict == verdict
    assert comparison.interval is not None
    assert comparison.interval[end] == 0.0
    assert comparison.interval[1 - end] == pytest.approx(side * (2.5 + 3.0) * error, rel=0.02)


def test_an_interval_that_ends_at_zero_has_a_zero_without_a_sign() -> None:
    """Holm's later steps let intervals end at zero; seen from the other variant, it is still no -0.0."""
    rng = np.random.default_rng(4)
    noisy = [
        Result(variant=variant, seed=seed, loss=2 + level + 0.01 * rng.standard_normal())
        for variant, level in (("a", 0.0), ("b", 0.022), ("c", 0.03))
        for seed in range(4)
    ]
    ranking = rank(noisy, references=["a", "b", "c"])
    ends = [end for row in ranking.variants for one in row.versus.values() if one.interval for end in one.interval]
    assert ends.count(0.0) == 4
    assert all(np.copysign(1, end) > 0 for end in ends if end == 0)


def test_a_conclusion_says_what_was_asked_found_and_is_open() -> None:
    losses = {
        "base": (2.500, 2.520, 2.510),
        "bad": (2.801, 2.819, 2.812),
        "near": (2.503, 2.516, 2.511),
        "same": (2.5001, 2.5199, 2.5101),
    }
    found = [Result(variant=v, seed=s, loss=x) for v, row in losses.items() for s, x in enumerate(row)]
    asked, decided, unresolved = conclusion(rank([*found], references=["base"]))
    assert asked == "Asked: does the held-out loss of bad, near, same differ from that of base? Seeds of each: 3."
    assert "bad is worse than base by 0.301 nats per token (" in decided
    assert "near" not in decided
    assert unresolved.startswith("Open: ")
    assert "near–base" in unresolved
    nothing = conclusion(rank([run for run in found if run.variant != "bad"], references=["base"], margin=1e-9))[1]
    assert nothing == (
        "Nothing is decided. With 95 % confidence, none of the 2 tested comparisons shows a difference, "
        "and none shows that there is none."
    )
    alone = conclusion(rank(found[:6], references=["base", "bad"]))
    assert alone[0] == "Asked: do base and bad differ in held-out loss? Seeds of each: 3."
    assert alone[2] == "Open: nothing."
