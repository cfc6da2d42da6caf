"""Large tables are ranked by closed forms; they give what the general solution gives."""

import sys

import numpy as np
import pytest

import addnorm
from addnorm.statistics import Result, noise, rank

SHAPES = {"all": (4, 5), "one seed": (3, 1), "two variants": (2, 6), "one variant": (1, 4)}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("absent", [(), (0,)])
def test_the_closed_form_is_the_general_fit(
    name: str, absent: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    variants, seeds = SHAPES[name]
    present = np.ones((variants + 1, seeds + 2), bool)
    present[[variants, *absent]] = False
    present[:, seeds:] = False
    if not present.any():
        return
    values = 2.5 + 0.01 * np.random.default_rng(variants).normal(size=(7, *present.shape))
    closed, levels = noise.fit_noise(values, present), noise.fit_levels(values[0], present)
    monkeypatch.setattr(noise, "_is_block", lambda weight: False)
    general = noise.fit_noise(values, present)
    only = present.any(axis=1).sum() == 1  # without others there is nothing to leave it out of: a quotient of roundings
    for field in ("sd", "df", "variant_sd", "variant_df", "own_squares", "own_df"):
        one, other = getattr(closed, field), getattr(general, field)
        assert one.shape == other.shape
        if only and field.startswith("own"):
            assert not one.any()
        else:
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(levels, noise.fit_levels(values[0], present), rtol=1e-12)


def test_missing_runs_keep_the_general_fit() -> None:
    present = np.ones((3, 4), bool)
    assert noise._is_block(present.astype(float))
    present[1, 2] = False
    assert not noise._is_block(present.astype(float))


def test_ten_thousand_runs_are_ranked() -> None:
    """Minutes before: the general fit takes the cube of the seeds, and copies were looked for in all pairs of runs."""
    losses = 2.5 + 0.01 * np.random.default_rng(1).normal(size=(10, 1000))
    losses[3] -= 0.01
    rows = [{"variant": f"v{v}", "seed": s, "loss": float(x)} for (v, s), x in np.ndenumerate(losses)]
    ranking = addnorm.rank(rows, margin=1e-3)
    assert ranking["v3"].versus["v0"].verdict == "better"
    assert [row.seeds for row in ranking.variants] == [1000] * 10


def test_copies_are_found_as_before() -> None:
    """Within a variant, across variants, and only where a hash or the digits show it."""

    def run(variant: str, seed: int, loss: float, mark: str | None = None) -> Result:
        return Result(variant=variant, seed=seed, loss=loss, content_hash=mark)

    found = rank(
        [
            run("a", 0, 2.5, "x"), run("a", 1, 2.6, "y"), run("a", 2, 2.5, "x"), run("a", 3, 2.7),
            run("b", 0, 2.8, "z"), run("b", 1, 2.9, "y"), run("b", 2, 2.85), run("b", 3, 2.95, "w"),
        ],
        references=["a"],
    )  # fmt: skip
    codes = sorted(warning.note["code"] for warning in found.warnings)
    assert codes.count("copy") == 1  # a at seed 2
    assert codes.count("mislabelled") == 1  # b at seed 1
    assert {row.variant: row.seeds for row in found.variants} == {"a": 3, "b": 3}


def calls(variants: int, **options: object) -> int:
    """Functions that a ranking calls, of Python and of C; numpy's loops are one call each."""
    losses = 2.5 + 0.01 * np.random.default_rng(variants).normal(size=(variants, 5))
    losses[1::3] -= 0.1  # claims, which narrow the intervals of ranks
    results = [Result(variant=f"v{v}", seed=s, loss=float(x)) for (v, s), x in np.ndenumerate(losses)]
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        rank(results, references=["v0"], **options)  # type: ignore[arg-type]
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("margin", [0.005, 0.02])
def test_four_times_the_variants_take_four_times_the_calls(margin: float) -> None:
    """All pairs are compared for the intervals of ranks: in arrays, without a call for each. It was ten times as many."""
    calls(4, margin=margin)  # what is imported or cached at first belongs to neither
    assert calls(160, margin=margin) < 4.5 * calls(40, margin=margin)
