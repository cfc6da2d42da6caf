"""Number formats of pages."""

import pytest

from addnorm.reporting.formats.measured import levels, tier_name
from addnorm.reporting.formats.numbers import duration, quantity, size, times
from addnorm.statistics.ranking import Tier
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


def test_no_number_just_below_the_next_unit_is_printed_with_an_exponent() -> None:
    numbers = [
        99.4,
        99.6,
        999.4,
        999.6,
        999_400,
        999_600,
        1000 * 1024 - 1,
        1_070_000_000,
        1023.9 * 1024**2,
        123.4,
        0.0054,
    ]
    for written in (quantity, size, times):
        assert not [text for number in numbers if "e" in (text := written(number))]
    assert (quantity(999.6), quantity(999_600), quantity(999_400)) == ("1 k", "1 M", "999 k")
    assert (size(1_070_000_000), size(400 * 1024**2), size(1023)) == ("1020 MiB", "400 MiB", "1023 B")
    assert (times(99.6), times(99.4), times(2.5)) == ("100", "99", "2.5")


def test_levels_of_a_measure_of_unknown_scale_keep_their_digits() -> None:
    assert levels(in_nats=True)(2.05193e-06) == "0.0000"
    assert levels(in_nats=False)(2.05193e-06) == "2.05193e−06"
    assert levels(in_nats=False)(None) == "–"


@pytest.mark.parametrize(
    ("names", "english", "chinese"),
    [
        (("a", "b and c"), "between a and b and c", "介于 a 与 b and c 之间"),
        (("a and b", "c"), None, "介于 a and b 与 c 之间"),
    ],
)
def test_a_tier_between_references_whose_names_hold_a_conjunction(names, english, chinese) -> None:
    tier = Tier(kind="between", names=names, gaps=(1,), firm=True)
    assert tier_name(tier, phrases("zh")) == chinese
    assert english is None or tier.label == english
