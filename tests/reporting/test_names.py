"""Short names: what is shown of a name when many are alike."""

import pytest

from addnorm.reporting.formats.names import short_names


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["base", "v2m1"], ["base", "v2m1"]),
        (
            ["a=1,b=long-enough-to-be-cut", "a=1,b=another-long-value-x"],
            ["long-enough-to-be-cut", "another-long-value-x"],
        ),
        (["base, rate 1e-3, depth 2 and", "base, rate 2e-3, depth 2 and"], ["1e-3", "2e-3"]),
        (["the-same-beginning-is-long-one", "the-same-beginning-is-long-two", "base"], ["…one", "…two", "base"]),
        (["one-and-the-same-ending-here", "two-and-the-same-ending-here"], ["one…", "two…"]),
        (["x" * 40 + "1" + "y" * 20, "x" * 40 + "2" + "y" * 20], ["x" * 15 + "…yy#1", "x" * 15 + "…yy#2"]),
    ],
)
def test_what_differs_is_kept(names, expected):
    assert list(short_names(names).values()) == expected


def test_every_short_name_fits_and_is_unique():
    names = [
        f"residual={r},scores={s},rate=0.00{k}"
        for r in ("cumulative", "r")
        for s in ("running_mean", "x" * 30)
        for k in (1, 2)
    ]
    short = short_names(names)
    assert len(set(short.values())) == len(names)
    assert all(len(name) <= 22 for name in short.values())


def test_of_a_grid_the_longest_values_are_cut_first_and_no_number():
    names = [f"residual={r},scores=own,rate={rate}" for r in ("cumulative", "rezero") for rate in ("1e-3", "0.0025")]
    assert [*short_names(names, 13).values()] == ["cumula·1e-3", "cumula·0.0025", "rezero·1e-3", "rezero·0.0025"]
    assert next(iter(short_names(names, 30).values())) == "cumulative·1e-3"
