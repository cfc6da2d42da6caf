"""Aligned columns that keep within a terminal."""

import pytest

from addnorm.reporting.formats.text_table import aligned

ROWS = [
    ["run", "gradient at the start", "at the end", "reason"],
    ["base-s0", "0.51", "0.33", "the worker ended early and its log says why"],
    ["summed-s0", "0.50", "0.32", ""],
]


def test_a_table_that_fits_is_left_as_it_is() -> None:
    assert aligned(ROWS, left={0, 3}) == aligned(ROWS, left={0, 3}, width=100)
    assert aligned([*ROWS[:1], ["a", "1", "2", "c d"]], width=100) == (
        "run  gradient at the start  at the end  reason\na                        1           2     c d"
    )


def test_headings_are_folded_first() -> None:
    assert aligned([row[:3] for row in ROWS], width=30) == (
        "           gradient\n"
        "             at the  at the\n"
        "run           start     end\n"
        "base-s0        0.51    0.33\n"
        "summed-s0      0.50    0.32"
    )


def test_then_the_longest_words_are_wrapped() -> None:
    assert aligned(ROWS, left={0, 3}, width=56) == (
        "           gradient\n"
        "             at the  at the\n"
        "run           start     end  reason\n"
        "base-s0        0.51    0.33  the worker ended early and\n"
        "                             its log says why\n"
        "summed-s0      0.50    0.32"
    )


def test_what_is_left_is_divided_and_every_part_has_the_names() -> None:
    rows = [["run", *(f"seed {seed}" for seed in range(6))], *([name, *["2.5000"] * 6] for name in ("base", "other"))]
    assert aligned(rows, width=24) == (
        "run    seed 0  seed 1\nbase   2.5000  2.5000\nother  2.5000  2.5000\n\n"
        "run    seed 2  seed 3\nbase   2.5000  2.5000\nother  2.5000  2.5000\n\n"
        "run    seed 4  seed 5\nbase   2.5000  2.5000\nother  2.5000  2.5000"
    )


@pytest.mark.parametrize("width", range(24, 120, 7))
def test_no_cell_is_lost_at_any_width(width: int) -> None:
    text = aligned(ROWS, left={0, 3}, width=width)
    assert all(len(line) <= max(width, 9 + 2 + 20) for line in text.splitlines())
    words = [word for row in ROWS for cell in row for word in cell.split()]
    assert not [word for word in words if word not in text]
