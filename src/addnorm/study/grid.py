"""Grids of a study file: axes of values for any field, expanded into one variant per point.

    grid: {training.optimizer.learning_rate: [1e-3, 3e-3], model.depth: [2, 4]}

An axis names a field by its path: below `training`, below `model`, or a field of a model directly (`residual.alpha`). The
grid of the study applies to every variant, the grid of a variant to that one; an axis of the variant's own grid replaces the
study's axis of the same field. A point is named after its values: `base, learning_rate 1e-3, depth 2`.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from addnorm.study.definition import Study, Training
from addnorm.study.encoding import digest
from addnorm.study.overlay import lay_over
from addnorm.study.problems import Problems, nearest, shown
from addnorm.study.variants import ALL_MODEL_FIELDS, read_variants

_UNWRITTEN = re.compile(r"[^A-Za-z0-9._+-]+")
"""Characters that a variant's name cannot hold."""


@dataclass(frozen=True)
class Axis:
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
class Grid:
    """A study's variants with every axis expanded."""

    variants: Any
    """Content of `variants`, with an entry per point."""
    points: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """For each expanded variant, the index of its value on every axis, by the axis's path."""
    expanded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the points of each variant of the file that has axes."""

    def references(self, references: object) -> object:
        """Content of `references`, where a variant with axes stands for all of its points."""
        if not isinstance(references, list | tuple):
            return references
        return type(references)(point for name in references for point in self._points_of(name))

    def _points_of(self, name: object) -> tuple[object, ...]:
        return self.expanded.get(name, (name,)) if isinstance(name, str) else (name,)


def expand_grid(
    content: Mapping[str, Any], training: Training | None, locate: Callable[[str], str], problems: Problems
) -> Grid:
    """Expand the variants of a study file; without any axis they are returned unchanged.

    Args:
        content: the study file's content.
        training: the study's training; None if it has problems.
        locate: adds the line of the file to the path of a problem.
        problems: receives the problems: an unknown field, an empty axis, a value that a variant does not take, two points of
            one name.
    """
    variants = content.get("variants")
    whole = content.get("grid")
    if whole is None and not any(_own_grid(entry) is not None for entry in _entries(variants)):
        return Grid(variants)
    before = len(problems)
    read_variants(content.get("model"), variants, training, problems)
    shared = axes_of(whole, "$.grid", locate, problems)
    if len(problems) > before or training is None or not isinstance(variants, Mapping):
        return Grid(variants)
    axes = {}
    for name, entry in variants.items():
        own = axes_of(_own_grid(entry), f"$.variants.{name}.grid", locate, problems)
        axes[name] = [*({axis.names: axis for axis in (*shared, *own)}).values()]
    if len(problems) == before:
        check_values(content, axes, training, locate, problems)
    return Grid(variants) if len(problems) > before else expanded_over(variants, axes, locate, problems)


def require_distinct(study: Study, grid: Grid, locate: Callable[[str], str], problems: Problems) -> None:
    """Add a problem for every variant of a grid that equals an earlier variant after its sizes are fitted to the data."""
    first: dict[str, str] = {}
    for name, model in study.variants.items():
        training = study.training_of(name)
        # As `fit_models` does it: its own or any vocabulary, and positions for a whole sequence.
        vocab = model.vocab if name in study.own_vocab else 256
        fitted = replace(model, vocab=vocab, max_seq=max(model.max_seq, training.seq))
        other = first.setdefault(digest({"model": fitted, "training": training}), name)
        if other != name and {other, name} & grid.points.keys():
            mine, theirs = grid.points.get(name, {}), grid.points.get(other, {})
            differing = [path for path in {**mine, **theirs} if mine.get(path) != theirs.get(path)]
            path = differing[0] if len(differing) == 1 else "$.grid" if differing else f"$.variants.{name}"
            problems.add(
                locate(path),
                f"expected different variants, got {other!r} and {name!r}, which are equal. Remove one of the "
                f"{'values' if differing else 'variants'}.",
            )


def _entries(variants: object) -> Iterator[object]:
    yield from variants.values() if isinstance(variants, Mapping) else ()


def _own_grid(entry: object) -> object:
    return entry.get("grid") if isinstance(entry, Mapping) else None


def axes_of(grid: object, path: str, locate: Callable[[str], str], problems: Problems) -> list[Axis]:
    """Axes of a grid, one for each field.

    Args:
        grid: a mapping from fields to lists of values; the paths of the fields have dots, or are nested mappings.
        path: its place, for messages.
        locate: adds the line of the file to the path of a problem.
        problems: receives the problems.
    """
    axes: dict[tuple[str, ...], Axis] = {}
    for place, names, values in _leaves(grid, path):
        known = ("model", "training", *ALL_MODEL_FIELDS)
        if not isinstance(values, list | tuple):
            advice = f" Write [{values}]." if isinstance(values, int | float | str) else ""
            problems.add(locate(place), f"expected a list of values, got {shown(values)}.{advice}")
        elif not values:
            problems.add(
                locate(place), "expected at least one value, got an empty list. Add values, or remove the axis."
            )
        elif not names or (len(names) == 1 and names[0] in ("model", "training")):
            problems.add(locate(place), "expected the path of a field, such as training.steps or model.depth.")
        elif names[0] not in known:
            problems.add(locate(place), f"no field {names[0]!r}{nearest(names[0], known)}")
        elif names[0] == "model" and names[1] not in ALL_MODEL_FIELDS:
            problems.add(locate(place), f"no field {names[1]!r}{nearest(names[1], ALL_MODEL_FIELDS)}")
        else:
            field_path = names[1:] if names[0] == "model" else names
            if field_path in axes:
                problems.add(
                    locate(place), f"expected one axis for each field, got {axes[field_path].path} too. Keep one."
                )
            axes[field_path] = Axis(place, field_path, tuple(values))
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


def check_values(
    content: Mapping[str, Any],
    axes: Mapping[str, list[Axis]],
    training: Training,
    locate: Callable[[str], str],
    problems: Problems,
) -> None:
    """Read every variant with every single value, so that a problem is reported at its axis."""
    refused: dict[str, dict[str, dict[int, set[str]]]] = {}
    """Variants by axis, text and index of the value."""
    users: dict[str, set[str]] = {}
    sizes: dict[str, int] = {}
    for name, of in axes.items():
        for axis in of:
            users.setdefault(axis.path, set()).add(name)
            sizes[axis.path] = len(axis.values)
            for index, value in enumerate(axis.values):
                found = Problems()
                entry = axis.over(content["variants"][name], value)
                read_variants(content.get("model"), {name: entry}, training, found)
                for text in found.texts():
                    refused.setdefault(axis.path, {}).setdefault(text, {}).setdefault(index, set()).add(name)
    for path, texts in refused.items():
        for text, by_index in texts.items():
            variants = set.union(*by_index.values())
            whose = "" if variants == users[path] else f"variant {', '.join(sorted(variants))}: "
            places = [path] if len(by_index) == sizes[path] else [f"{path}[{index}]" for index in by_index]
            for place in places:
                problems.add(locate(place), whose + text)


def expanded_over(
    variants: Mapping[str, Any], axes: Mapping[str, list[Axis]], locate: Callable[[str], str], problems: Problems
) -> Grid:
    """Expand variants to the product of their axes.

    Args:
        variants: content of `variants`.
        axes: those of each variant.
        locate: adds the line of the file to the path of a problem.
        problems: receives two points of one name.
    """
    entries: dict[str, Any] = {}
    points: dict[str, dict[str, int]] = {}
    expanded: dict[str, tuple[str, ...]] = {}
    for base, entry in variants.items():
        labels = _labels(axes[base])
        names = []
        for indices in itertools.product(*(range(len(axis.values)) for axis in axes[base])):
            point, name = entry, base
            for axis, label, index in zip(axes[base], labels, indices, strict=True):
                point = axis.over(point, axis.values[index])
                name += f", {label} {_written(axis.values[index])}"
            if name in entries or (name != base and name in variants):
                problems.add(
                    locate(axes[base][0].path),
                    f"expected a name for each variant, got {name!r} twice. Remove one of the values.",
                )
            if isinstance(point, Mapping) and isinstance(point.get("title"), str):
                point = {**point, "title": point["title"] + name.removeprefix(base)}
            entries[name] = point
            names.append(name)
            if axes[base]:
                points[name] = {axis.path: index for axis, index in zip(axes[base], indices, strict=True)}
        if axes[base]:
            expanded[base] = tuple(names)
    return Grid(entries, points, expanded)


def _labels(axes: list[Axis]) -> list[str]:
    """The shortest ends of the axes' paths that tell them apart."""
    labels = []
    for axis in axes:
        others = [other.names for other in axes if other is not axis]
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
