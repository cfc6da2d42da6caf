"""Rows of settings in which every pair of values of two factors occurs, far fewer than all combinations.

Why pairs: what goes wrong only when two things meet is found; what takes three needs a test that names the three.
"""

from collections.abc import Hashable, Sequence
from itertools import combinations, product


def pairwise(*factors: Sequence[Hashable]) -> list[tuple[Hashable, ...]]:
    """Rows, each with one value of every factor; the same rows for the same factors.

    Each row begins with a pair that no row has yet, and every other factor takes the value that adds the most new pairs.

        >>> pairwise("ab", "xy", "12")
        [('a', 'x', '1'), ('a', 'y', '2'), ('b', 'x', '2'), ('b', 'y', '1')]
    """
    if len(factors) < 2:
        return [(value,) for values in factors for value in values]
    places = range(len(factors))
    missing = dict.fromkeys(
        (i, a, j, b)
        for i, j in combinations(places, 2)
        for a, b in product(range(len(factors[i])), range(len(factors[j])))
    )
    rows = []
    while missing:
        i, a, j, b = next(iter(missing))
        row = {i: a, j: b}
        for place in sorted(set(places) - {i, j}, key=lambda place: -len(factors[place])):
            gains = [
                sum(_pair(place, value, other, chosen) in missing for other, chosen in row.items())
                for value in range(len(factors[place]))
            ]
            best = max(gains)
            # Among equals take turns, so that a value with nothing left to meet does not stand in all further rows.
            equals = [value for value, gain in enumerate(gains) if gain == best]
            row[place] = equals[len(rows) % len(equals)]
        for first, second in combinations(sorted(row), 2):
            missing.pop((first, row[first], second, row[second]), None)
        rows.append(tuple(factors[place][row[place]] for place in places))
    return rows


def _pair(i: int, a: int, j: int, b: int) -> tuple[int, int, int, int]:
    return (i, a, j, b) if i < j else (j, b, i, a)
