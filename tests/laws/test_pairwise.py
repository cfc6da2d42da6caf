"""Rows made by `pairwise` hold every pair, and are few."""

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwise import pairwise


@given(st.lists(st.integers(1, 5), min_size=2, max_size=6))
def test_every_pair_occurs_and_no_row_is_idle(sizes: list[int]) -> None:
    rows = pairwise(*map(range, sizes))
    seen: set[tuple[int, int, object, object]] = set()
    for row in rows:
        assert len(row) == len(sizes)
        new = {(i, j, row[i], row[j]) for i, j in combinations(range(len(sizes)), 2)} - seen
        assert new, "a row without a new pair"
        seen |= new
    assert seen == {
        (i, j, a, b)
        for i, j in combinations(range(len(sizes)), 2)
        for a, b in product(range(sizes[i]), range(sizes[j]))
    }
    assert rows == pairwise(*map(range, sizes))


@pytest.mark.parametrize(
    ("sizes", "most"), [((2, 2, 2), 4), ((2,) * 7, 10), ((10, 9, 6, 5, 5, 5, 4), 110), ((3, 1), 3), ((4,), 4)]
)
def test_rows_are_few(sizes: tuple[int, ...], most: int) -> None:
    assert len(pairwise(*map(range, sizes))) <= most
