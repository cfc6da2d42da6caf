"""`trend`: what slopes it finds, at what rate it claims falsely, and which runs count."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from addnorm.errors import InputError, UnknownName
from addnorm.statistics import Result
from addnorm.statistics.measure import LOSS_OF_ANSWERS
from addnorm.statistics.trend import Size, trend

PARAMETERS = {"small": 50_000.0, "middle": 90_000.0, "large": 200_000.0}
SLOPES = {"base": 0.0, "gains": -0.03, "loses": 0.03, "steady": 0.0}


def sizes(
    slopes: Mapping[str, float] = SLOPES,
    *,
    seeds: int = 5,
    noise: float | Mapping[str, float] = 0.002,
    draw: int = 0,
) -> list[Size]:
    """Losses that fall by 0.3 nats per doubling, with a difference from the first variant of 0.05 nats that changes."""
    rng = np.random.default_rng(draw)
    found = []
    for name, parameters in PARAMETERS.items():
        sd = noise if isinstance(noise, float) else noise[name]
        by_seed = 0.01 * rng.normal(size=seeds)
        runs = []
        for place, (variant, slope) in enumerate(slopes.items()):
            level = 2.0 - 0.05 * (place > 0) + (slope - 0.3) * np.log2(parameters / 50_000)
            runs += [
                Result(variant=variant, seed=seed, loss=float(level + by_seed[seed] + sd * rng.normal()))
                for seed in range(seeds)
            ]
        found.append(Size(name=name, parameters=parameters, results=runs))
    return found


def test_the_change_is_the_least_squares_slope_of_the_differences() -> None:
    given = sizes(noise=0.01)
    found = trend(given, references=["base"])
    across = np.log2(list(PARAMETERS.values()))
    for row in found.variants:
        if row.variant == "base":
            continue
        mean = [
            np.mean([run.finished_loss for run in size.results if run.variant == row.variant])
            - np.mean([run.finished_loss for run in size.results if run.variant == "base"])
            for size in given
        ]
        assert row.means("base") == pytest.approx(mean, abs=1e-12)
        assert row.versus["base"].difference == pytest.approx(np.polyfit(across, mean, 1)[0], abs=1e-12)


def test_directions() -> None:
    found = trend(sizes(noise=0.001), references=["base"])
    assert {row.variant: row.direction("base") for row in found.variants if row.variant != "base"} == {
        "gains": "falls",
        "loses": "rises",
        "steady": "level",
    }
    assert [row.variant for row in found.variants] == [
        "gains",
        "steady",
        "base",
        "loses",
    ]  # by loss at the largest size
    assert trend(sizes(noise=0.02), references=["base"])["steady"].direction("base") == "undecided"


def test_the_order_of_the_sizes_does_not_matter() -> None:
    assert trend(sizes()[::-1], references=["base"]).to_json() == trend(sizes(), references=["base"]).to_json()


@pytest.mark.thorough
@pytest.mark.parametrize("noise", [0.01, {"small": 0.02, "middle": 0.01, "large": 0.004}], ids=["equal", "falling"])
def test_false_claims_are_as_rare_as_stated(noise: float | Mapping[str, float]) -> None:
    """With constant differences, 5 % of studies may claim a change in any of five comparisons; 8.3 % is three errors more."""
    level = dict.fromkeys(("base", "a", "b", "c", "d", "e"), 0.0)
    claims = 0
    for draw in range(400):
        found = trend(sizes(level, noise=noise, draw=draw), references=["base"])
        claims += any(row.direction("base") in ("falls", "rises") for row in found.variants if row.variant != "base")
    assert claims / 400 < 0.083


def test_a_change_of_five_standard_errors_is_found() -> None:
    changes = {"base": 0.0, "a": 0.0, "b": -0.03, "c": 0.0}
    found = sum(
        trend(sizes(changes, noise=0.012, draw=draw), references=["base"])["b"].direction("base") == "falls"
        for draw in range(20)
    )
    assert found >= 19


def test_runs_that_are_not_at_every_size_do_not_count() -> None:
    given = sizes()
    lacking = [
        run for run in given[2].results if not (run.variant == "loses" or (run.variant == "gains" and run.seed == 4))
    ]
    found = trend([*given[:2], replace(given[2], results=lacking)], references=["base"])
    assert "loses" not in {row.variant for row in found.variants}
    assert found["gains"].versus["base"].seeds == 4
    assert found["steady"].versus["base"].seeds == 5
    assert found.warnings == (
        "without a seed at every size, and so without a trend: loses.",
        "not at every size, and so not counted in the change: seed 4 of gains.",
    )
    fewer = replace(given[2], results=[run for run in given[2].results if run.seed < 3])
    found = trend([*given[:2], fewer], references=["base"])
    assert found.warnings == ("not at every size, and so not counted in the change: seed 3, 4 of every variant.",)
    differences = found["gains"].differences["base"]
    assert [len(each) for each in differences] == [5, 5, 3]  # a column counts every seed that both have there


def test_a_variant_that_diverged_is_not_said_to_fall() -> None:
    given = sizes(noise=0.001)
    runs = [
        replace(run, loss=None, state="diverged") if (run.variant, run.seed) == ("gains", 0) else run
        for run in given[2].results
    ]
    row = trend([*given[:2], replace(given[2], results=runs)], references=["base"])["gains"]
    assert row.direction("base") is None
    assert row.versus["base"].verdict == "failed"
    assert "diverged" in str(row.versus["base"].reason)


def test_a_variant_that_diverged_at_every_seed_is_said_to_have_diverged() -> None:
    given = sizes(noise=0.001)
    runs = [
        replace(run, loss=None, state="diverged") if run.variant == "gains" else run
        for run in given[2].results
        if run.variant != "loses"
    ]
    found = trend([*given[:2], replace(given[2], results=runs)], references=["base"])
    assert {row.variant for row in found.variants} == {"base", "steady"}
    assert found.warnings == (
        "diverged, and so without a trend: gains.",
        "without a seed at every size, and so without a trend: loses.",
    )


def test_a_model_without_training_is_a_constant() -> None:
    """As in `rank`: its one value belongs to no seed, and the noise is that of the other variant's slopes alone."""
    given = [
        replace(
            size,
            results=[
                *(run for run in size.results if run.variant != "base"),
                *(Result(variant="base", seed=seed, loss=5.0, content_hash="one", trained=False) for seed in range(5)),
            ],
        )
        for size in sizes(noise=0.004)
    ]
    change = trend(given, references=["base"])["steady"].versus["base"]
    slopes = [
        np.polyfit(
            np.log2([size.parameters for size in given]),
            [
                next(run.finished_loss for run in size.results if (run.variant, run.seed) == ("steady", seed))
                for size in given
            ],
            1,
        )[0]
        for seed in range(5)
    ]
    assert change.verdict == "better"
    assert change.difference == pytest.approx(np.mean(slopes))
    assert change.standard_error == pytest.approx(np.std(slopes, ddof=1) / np.sqrt(5))


def test_runs_to_come_make_it_provisional() -> None:
    given = sizes()
    queued = Result(variant="base", seed=9, state="queued")
    found = trend([replace(given[0], results=[*given[0].results, queued]), *given[1:]], references=["base"])
    assert found.warnings[-1] == "provisional: runs have yet to end."


def test_one_variant_may_be_left_out() -> None:
    found = trend(sizes(), references=["base"], left_out=["loses"])
    assert [row.variant for row in found.variants] == ["gains", "steady", "base"]


def test_what_cannot_be_compared_is_told() -> None:
    given = sizes()
    with pytest.raises(InputError, match="at least two sizes, got 1"):
        trend(given[:1], references=["base"])
    with pytest.raises(InputError, match="small and small: expected two sizes, got 50,000 parameters in both"):
        trend([given[0], given[0]], references=["base"])
    with pytest.raises(InputError, match="small: expected a positive number of parameters, got 0"):
        trend([replace(given[0], parameters=0.0), given[1]], references=["base"])
    with pytest.raises(InputError, match="needs a reference"):
        trend(given, references=[])
    with pytest.raises(UnknownName, match="bas"):
        trend(given, references=["bas"])
    with pytest.raises(UnknownName, match="variant to be left out"):
        trend(given, references=["base"], left_out=["x"])
    hashed = [
        replace(size, results=[replace(run, corpus_hash=size.name) for run in size.results]) for size in given[:2]
    ]
    with pytest.raises(InputError, match="expected one corpus for all sizes, got 2"):
        trend(hashed, references=["base"])
    task = replace(given[1], measure=LOSS_OF_ANSWERS)
    with pytest.raises(InputError, match=r"one unit for all sizes, got nats per answer token, nats per token: their"):
        trend([given[0], task], references=["base"])
    apart = [replace(size, results=[run for run in size.results if run.variant != "base"]) for size in given[1:]]
    waiting = [Result(variant="base", seed=0, state="queued")]
    with pytest.raises(InputError, match="reference 'base': expected a seed that it finished at every size"):
        trend([given[0], *(replace(size, results=[*size.results, *waiting]) for size in apart)], references=["base"])


def two_sizes(small: list[float], large: list[float], seeds: int = 3) -> list[Size]:
    return [
        Size(
            name=name,
            parameters=parameters,
            results=[
                Result(variant=f"v{place}", seed=seed, loss=level + 0.001 * seed + 1e-6 * place * seed)
                for place, level in enumerate(levels)
                for seed in range(seeds)
            ],
        )
        for name, parameters, levels in (("small", 1e6, small), ("large", 2e6, large))
    ]


def test_decision_accuracy_counts_pairs_that_keep_their_sign() -> None:
    (found,) = trend(two_sizes([2.0, 2.1, 2.2, 2.3], [1.1, 1.0, 1.3, 1.2]), references=["v0"]).decisions
    assert (found.kept, found.pairs, found.share) == (4, 6, pytest.approx(4 / 6))
    assert found.interval is None  # four variants tell nothing of others
    # 24 orders of four: 1, 3, 5, 6, 5, 3, 1 of them keep 0 to 6 pairs, so 1/24 > 2.5 % lies at either end.
    assert found.chance == (0.0, 1.0)
    assert not trend(two_sizes([2.0, 2.1], [1.0, 1.1]), references=["v0"]).decisions


def test_an_order_that_is_kept_or_reversed() -> None:
    levels = [2 + 0.1 * place for place in range(9)]
    (kept,) = trend(two_sizes(levels, levels), references=["v0"]).decisions
    (turned,) = trend(two_sizes(levels, levels[::-1]), references=["v0"]).decisions
    assert (kept.share, kept.interval) == (1.0, (1.0, 1.0))
    assert (turned.share, turned.interval) == (0.0, (0.0, 0.0))
    # Kendall's variance for nine: 2 (2 9 + 5) / (9 9 8) of tau, so the share is 0.5 +- 1.96 * 0.133.
    assert kept.chance == pytest.approx((0.5 - 0.25, 0.5 + 0.25), abs=0.03)


def test_its_interval_holds_the_share_of_all_such_variants() -> None:
    # Levels at two sizes with correlation rho: a pair keeps its sign with probability 1/2 + asin(rho) / pi (Sheppard 1899).
    rng, rho, inside = np.random.default_rng(8), 0.7, 0
    truth = 0.5 + np.arcsin(rho) / np.pi
    for _ in range(200):
        small = rng.normal(size=12)
        large = rho * small + np.sqrt(1 - rho**2) * rng.normal(size=12)
        (found,) = trend(two_sizes(small.tolist(), large.tolist()), references=["v0"]).decisions
        assert found.interval is not None
        inside += found.interval[0] <= truth <= found.interval[1]
    assert inside / 200 >= 0.89  # 0.95 less 4 binomial sd
