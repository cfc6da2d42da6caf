"""Grids of a study file: axes of values for any field, expanded into one variant per point.

    grid: {training.optimizer.learning_rate: [1e-3, 3e-3], model.depth: [2, 4]}

An axis names a field by its path: below `training`, below `model`, or a field of a model directly (`residual.alpha`). The
grid of the study applies to every variant, the grid of a variant to that one; an axis of the variant's own grid replaces the
study's axis of the same field. A point is named after its values: `base, learning_rate 1e-3, depth 2`.

Axes are expanded as plain data, each point with its place on the axes; a point is decoded once.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from addnorm.study.definition import Study, Training
from addnorm.study.encoding import digest
from addnorm.study.overlay import lay_over
from addnorm.study.problems import Problems, nearest, shown
from addnorm.study.variants import ALL_MODEL_FIELDS, Variant, VariantReader

_UNWRITTEN = re.compile(r"[^A-Za-z0-9._+-]+")
"""Characters that a variant's name cannot hold."""


@dataclass(frozen=True)
class FieldAxis:
    """A field with the values that it takes."""

    path: str
    """Place in the study file."""
    names: tuple[str, ...]
    """Path of the field within a variant's entry."""
    values: tuple[Any, ...]

    def over(self, entry: object, value: Any) -> Any:
        """A variant's entry with one of the values."""
        for name in reversed(self.names):
            value = {name: value}
        return lay_over(entry, value)


@dataclass(frozen=True)
class Point:
    """A variant at one value of each of its axes, not yet decoded."""

    name: str
    base: str
    """The variant."""
    entry: Any
    """The variant's entry with the values."""
    at: Mapping[str, int]
    """Index of the value on every axis, by the axis's path."""
    values: Mapping[tuple[str, ...], Any] = field(default_factory=dict)
    """Value on every axis, by the path of the field within a variant."""


@dataclass(frozen=True)
class Grid:
    """A study's variants with every axis expanded."""

    variants: Mapping[str, Variant]
    """The decoded variants, one for each point."""
    points: Mapping[str, Point] = field(default_factory=dict)
    """The points of the variants that have axes, by name."""

    def points_of(self, base: str) -> tuple[str, ...]:
        """Names of the points of a variant of the file; its own name if it has no axes."""
        return tuple(point.name for point in self.points.values() if point.base == base) or (base,)


def expand_grid(content: Mapping[str, Any], training: Training | None, problems: Problems) -> Grid:
    """Decode the variants of a study file, and expand its grid.

    Args:
        content: the study file's content.
        training: the study's training; None if it has problems.
        problems: receives the problems.

    Raises:
        InputError: in a grid: an unknown field, an empty axis, a value that a variant does not take, two points of one name.
    """
    before, whole, variants = len(problems), content.get("grid"), content.get("variants")
    # The variants are decoded without the grid first, although most of the results are not used: a mistake in a variant
    # is then reported once, at the variant, and not at every point of the grid.
    reader = VariantReader(content.get("model"), training, problems)
    decoded = reader.read_all(variants, problems)
    own = {
        name: entry["grid"]
        for name, entry in (variants.items() if isinstance(variants, Mapping) else ())
        if isinstance(entry, Mapping) and entry.get("grid") is not None
    }
    if whole is None and not own:
        return Grid(decoded)
    shared = axes_of(whole, "$.grid", problems)
    problems.raise_any(since=before)
    if training is None or not isinstance(variants, Mapping):
        return Grid(decoded)
    axes = {}
    for name in variants:
        of_variant = axes_of(own.get(name), f"$.variants.{name}.grid", problems)
        axes[name] = [*({axis.names: axis for axis in (*shared, *of_variant)}).values()]
    problems.raise_any(since=before)
    return expanded(variants, axes, reader, problems, decoded)


def expanded(
    entries: Mapping[str, Any],
    axes: Mapping[str, Sequence[FieldAxis]],
    reader: VariantReader,
    problems: Problems,
    decoded: Mapping[str, Variant],
) -> Grid:
    """Expand the entries of variants to the product of their axes, and decode every point.

    Args:
        entries: content of the variants.
        axes: those of each variant; without any, it is taken from `decoded`.
        reader, problems: decode them, and receive the problems of values that do not fit each other.

    Raises:
        InputError: a value that a variant does not take, at its axis; or two points of one name.
    """
    before = len(problems)
    # First every value alone, then the points. A point with a wrong value would be reported with all of its values,
    # once for each combination with the others: of a 3 x 3 grid, three times. What remains after this are pairs that do
    # not fit each other, which only a point can show.
    single = _single_values(entries, axes, reader, problems)
    problems.raise_any(since=before)
    points: dict[str, Point] = {}
    for point in _points(entries, axes):
        # Two values may be written alike (1 and "1" are, "a/b" and "a b" too), and a point may have the name that the
        # file gives to a variant of its own. Names are folders and table rows: one of the two would overwrite the other
        # without a word.
        if point.name in points or (point.at and point.name in entries):
            problems.add_with_line(
                axes[point.base][0].path,
                f"expected a name for each variant, got {point.name!r} twice. Remove one of the values.",
            )
        points[point.name] = point
    problems.raise_any(since=before)
    variants = {}
    for name, point in points.items():
        if len(point.at) > 1:
            variant = reader.read(name, point.entry, problems)
        else:  # with one axis, the points are the single values
            variant = single[point.base, *next(iter(point.at.items()))] if point.at else decoded[name]
        if variant is not None:
            title = None if variant.title is None else variant.title + name.removeprefix(point.base)
            variants[name] = replace(variant, title=title)
    return Grid(variants, {name: point for name, point in points.items() if point.at})


def _single_values(
    entries: Mapping[str, Any], axes: Mapping[str, Sequence[FieldAxis]], reader: VariantReader, problems: Problems
) -> dict[tuple[str, str, int], Variant | None]:
    """Decode every variant with every single value, by variant, path of the axis and index of the value.

    A problem of a point would name several values; that of a single one is reported at its axis.
    """
    single: dict[tuple[str, str, int], Variant | None] = {}
    refused: dict[str, dict[str, dict[int, set[str]]]] = {}
    """Variants by axis, text and index of the value."""
    users: dict[str, dict[str, FieldAxis]] = {}
    for name, of in axes.items():
        for axis in of:
            users.setdefault(axis.path, {})[name] = axis
            for index, value in enumerate(axis.values):
                attempt = Problems()
                single[name, axis.path, index] = reader.read(name, axis.over(entries[name], value), attempt)
                for text in attempt.texts():
                    refused.setdefault(axis.path, {}).setdefault(text, {}).setdefault(index, set()).add(name)
    for path, texts in refused.items():
        (axis, *_) = users[path].values()
        for text, by_index in texts.items():
            variants = set.union(*by_index.values())
            whose = "" if variants == users[path].keys() else f"variant {', '.join(sorted(variants))}: "
            # A text that every value gets is about the field, so it stands once, at the axis.
            for place in [path] if len(by_index) == len(axis.values) else [f"{path}[{index}]" for index in by_index]:
                problems.add_with_line(place, whose + text)
    return single


def _points(entries: Mapping[str, Any], axes: Mapping[str, Sequence[FieldAxis]]) -> Iterator[Point]:
    """The product of the axes of every variant, as plain data."""
    for base, entry in entries.items():
        labels = _labels(axes[base])
        for indices in itertools.product(*(range(len(axis.values)) for axis in axes[base])):
            point, name = entry, base
            for axis, label, index in zip(axes[base], labels, indices, strict=True):
                point = axis.over(point, axis.values[index])
                name += f", {label} {_written(axis.values[index])}"
            at = {axis.path: index for axis, index in zip(axes[base], indices, strict=True)}
            values = {axis.names: axis.values[index] for axis, index in zip(axes[base], indices, strict=True)}
            yield Point(name, base, point, at, values)


def require_distinct(study: Study, grid: Grid, problems: Problems) -> None:
    """Add a problem for every variant of a grid that equals an earlier variant after its sizes are fitted to the data."""
    if not grid.points:
        return  # variants that a file names itself may be equal: `study_notes` says so
    first: dict[str, str] = {}
    for name, model in study.variants.items():
        training = study.training_of(name)
        # As `fit_models` does it: its own or any vocabulary, and positions for a whole sequence.
        vocab = model.vocab if name in study.own_vocab else 256
        fitted = replace(model, vocab=vocab, max_seq=max(model.max_seq, training.seq))
        other = first.setdefault(digest({"model": fitted, "training": training}), name)
        if other != name and {other, name} & grid.points.keys():
            one, two = (grid.points[each].at if each in grid.points else {} for each in (name, other))
            differing = [path for path in {**one, **two} if one.get(path) != two.get(path)]
            path = differing[0] if len(differing) == 1 else "$.grid" if differing else f"$.variants.{name}"
            problems.add_with_line(
                path,
                f"expected different variants, got {other!r} and {name!r}, which are equal. Remove one of the "
                f"{'values' if differing else 'variants'}.",
            )


def axes_of(grid: object, path: str, problems: Problems) -> list[FieldAxis]:
    """Axes of a grid, one for each field.

    Args:
        grid: a mapping from fields to lists of values; the paths of the fields have dots, or are nested mappings.
        path: its place, for messages.
        problems: receives the problems.
    """
    axes: dict[tuple[str, ...], FieldAxis] = {}
    for place, names, values in _leaves(grid, path):
        # Only the first name is checked here. The rest belongs to a kind that may itself be a value of another axis, so
        # whether the field exists is known only when a point is decoded.
        known = ("model", "training", *ALL_MODEL_FIELDS)
        if not isinstance(values, list | tuple):
            advice = f" Write [{values}]." if isinstance(values, int | float | str) else ""
            problems.add_with_line(place, f"expected a list of values, got {shown(values)}.{advice}")
        elif not values:
            problems.add_with_line(
                place, "expected at least one value, got an empty list. Add values, or remove the axis."
            )
        elif not names or (len(names) == 1 and names[0] in ("model", "training")):
            problems.add_with_line(place, "expected the path of a field, such as training.steps or model.depth.")
        elif names[0] not in known:
            problems.add_with_line(place, f"no field {names[0]!r}{nearest(names[0], known)}")
        elif names[0] == "model" and names[1] not in ALL_MODEL_FIELDS:
            problems.add_with_line(place, f"no field {names[1]!r}{nearest(names[1], ALL_MODEL_FIELDS)}")
        else:
            field_path = names[1:] if names[0] == "model" else names
            if field_path in axes:
                problems.add_with_line(
                    place, f"expected one axis for each field, got {axes[field_path].path} too. Keep one."
                )
            axes[field_path] = FieldAxis(place, field_path, tuple(values))
    return list(axes.values())


def _leaves(grid: object, path: str, names: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...], object]]:
    """The axes of a grid, whose paths may be written with dots or as nested mappings."""
    if isinstance(grid, Mapping) and (grid or names):
        for key, value in grid.items():
            yield from _leaves(value, f"{path}.{key}", (*names, *str(key).split(".")))
        if not grid:
            yield path, names, grid
    elif grid is not None or names:
        yield path, names, grid


def _labels(axes: Sequence[FieldAxis]) -> list[str]:
    """The shortest ends of the axes' paths that tell them apart."""
    labels = []
    for axis in axes:
        others = [other.names for other in axes if other is not axis]
        # As short as possible, because names of points become names of folders; as long as necessary to differ on this
        # variant.
        count = next(
            (n for n in range(1, len(axis.names)) if all(axis.names[-n:] != other[-n:] for other in others)),
            len(axis.names),
        )
        labels.append(".".join(axis.names[-count:]))
    return labels


def _written(value: Any) -> str:
    """A value as part of a variant's name."""
    if isinstance(value, Mapping):
        kind = [_written(value["kind"])] if "kind" in value else []
        rest = [f"{_written(key)} {_written(entry)}" for key, entry in value.items() if key != "kind"]
        return " ".join(kind + rest) or "none"
    if isinstance(value, list | tuple):
        return "-".join(map(_written, value)) or "none"
    text = shown(value) if value is None or isinstance(value, bool) else str(value)
    return _UNWRITTEN.sub("_", text) or "none"
