"""Number formats of pages."""

import pytest

from addnorm.reporting.formats.numbers import duration
from addnorm.words import phrases


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (99.4, "99 s"),
        (100, "2 min"),
        (5999, "100 min"),
        (6000, "1 h 40 min"),
        (172799, "47 h 59 min"),
        (172800, "2 days"),
    ],
)
def test_durations(seconds: float, expected: str) -> None:
    key, values = duration(seconds)
    assert phrases("en")(key, **values) == expected
