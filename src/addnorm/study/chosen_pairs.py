"""Pairs of variants that a study compares: `compare` of a study file, for the variants that its grid makes.

By default a point of a grid is compared with a reference at equal values of the axes that both have: of `depth × alpha`, each
alpha at depth 2 with the reference at depth 2. A comparison across depths answers a question that nobody asked, and widens
every other interval, because all comparisons share one error rate.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from addnorm.study.decoding import UNREADABLE
from addnorm.study.grid import Grid
from addnorm.study.problems import Problems, nearest, shown

Pair = tuple[str, str]


def choose_pairs(
    grid: Grid, content: Mapping[str, Any], decoded: Mapping[str, Any], problems: Problems
) -> dict[str, Any]:
    """References and pairs of a study: fields of `Study`.

    A reference that is named by its variant stands for all of its points, each at its own place. A point that is named alone
    is compared with all variants. Without `references`, the points of the file's first variant are the references, unless
    the file has that variant alone.

    Args:
        grid: the study's variants.
        content: the study file's content.
        decoded: its fields `references` and `compare`, where it has them.
        problems: receives a name that is no variant.
    """
    references, compare = decoded.get("references"), decoded.get("compare", "equal_axes")
    if references is UNREADABLE or compare is UNREADABLE:
        return {}
    given = compare if isinstance(compare, tuple) else ()
    names = references or (tuple(dict.fromkeys(other for _, other in given)) or _first(grid, content))
    expanded = tuple(point for name in names for point in grid.points_of(name))
    fields: dict[str, Any] = {"references": expanded} if expanded or "references" in decoded else {}
    if given:
        for place, pair in enumerate(given):
            _check(grid, pair, f"$.compare[{place}]", expanded, problems)
        wanted = [
            (name, other)
            for variant, reference in given
            for name, other in _at_equal_axes(grid, grid.points_of(variant), grid.points_of(reference))
        ]
        return {**fields, "pairs": tuple(dict.fromkeys(wanted))}
    if compare == "all" or not grid.points:
        return fields
    every = list(_every_pair(grid.variants, expanded))
    # A reference whose points are all named stands for each of them at its own place. A point that is named alone was asked
    # for as it is: whatever it is compared with has other values of its axes.
    alone = {name for name in expanded if not set(_siblings(grid, name)) <= set(expanded)}
    pairs = [pair for pair in every if alone.intersection(pair) or _agree(grid, *pair)]
    return {**fields, "pairs": tuple(pairs)} if 0 < len(pairs) < len(every) else fields


def _first(grid: Grid, content: Mapping[str, Any]) -> tuple[str, ...]:
    """The first variant of a file in which it has axes and is not alone."""
    variants = content.get("variants")
    bases = list(variants) if isinstance(variants, Mapping) else []
    return (bases[0],) if len(bases) > 1 and grid.points_of(bases[0]) != (bases[0],) else ()


def _check(grid: Grid, pair: Pair, path: str, references: Sequence[str], problems: Problems) -> None:
    known = [*grid.variants, *dict.fromkeys(point.base for point in grid.points.values())]
    for name in pair:
        if name not in known:
            problems.add(path, f"no variant {shown(name)}{nearest(name, known)}")
            return
    if pair[0] == pair[1]:
        problems.add(path, f"expected two variants, got {shown(pair[0])} twice.")
    elif not set(grid.points_of(pair[1])) <= set(references):
        problems.add(
            path,
            f"expected a reference as the second of the pair, got {shown(pair[1])}. Add it to references, or remove "
            "references.",
        )


def _every_pair(variants: Mapping[str, object], references: Sequence[str]) -> Iterator[Pair]:
    """Every variant with every reference, a pair of references once."""
    places = {name: place for place, name in enumerate(references)}
    for name in variants:
        for other in references:
            if name != other and places.get(name, len(places)) > places[other]:
                yield name, other


def _at_equal_axes(grid: Grid, points: Sequence[str], references: Sequence[str]) -> list[Pair]:
    """Pairs of points at equal axes; all of them where none agree, since these very variants were asked for."""
    pairs = [(name, other) for name in points for other in references if name != other]
    return [pair for pair in pairs if _agree(grid, *pair)] or pairs


def _siblings(grid: Grid, name: str) -> tuple[str, ...]:
    point = grid.points.get(name)
    return (name,) if point is None else grid.points_of(point.base)


def _agree(grid: Grid, name: str, other: str) -> bool:
    """True if two variants have equal values on every axis that both have."""
    one, two = ({} if (point := grid.points.get(each)) is None else point.values for each in (name, other))
    return all(_equal(one[axis], two[axis]) for axis in one.keys() & two.keys())


def _equal(one: Any, other: Any) -> bool:
    """True for values that a study file writes in different ways: 1e-3, which YAML 1.1 reads as a text, and 0.001."""
    try:
        return one == other or math.isclose(float(one), float(other), rel_tol=1e-15)
    except (TypeError, ValueError):
        return False
