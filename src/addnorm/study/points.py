"""Points of a tuned study: every variant with every combination of the values that it is tuned over.

    tune: {seeds: [100, 101], over: {training.optimizer.learning_rate: [1e-3, 3e-3]}}

The axes are those of a grid. A variant may have its own, `tune: {over: …}`, which add to the study's or replace the one of the
same field. A point is named like a point of a grid: `base, learning_rate 1e-3`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from types import NoneType
from typing import Any

from addnorm.fields import FieldError
from addnorm.study.decoding import UNREADABLE, construct, read
from addnorm.study.definition import Study
from addnorm.study.encoding import digest, encode
from addnorm.study.grid import Axis, Grid, axes_of, check_values, expanded_over
from addnorm.study.problems import Problems, nearest, shown
from addnorm.study.tuning import Tuning
from addnorm.study.variants import Variants, read_variants, training_content

FIELDS = tuple(field.name for field in fields(Tuning) if field.name != "own")
"""Names that `tune` of a study file may set."""


@dataclass(frozen=True, kw_only=True)
class Points:
    """The points of a tuned study."""

    study: Study
    """A study whose variants are the points, with the tuning seeds."""
    values: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """Plain values by variant, name of the point, and path of the axis's field."""
    over: Mapping[str, Mapping[str, tuple[Any, ...]]]
    """Values of every axis as they were written, by variant and path of the field."""


def points(study: Study) -> Points:
    """The points of a study with `tune`.

    Raises:
        InputError: an axis is wrong, a variant has none, or two points are equal; each with its path.
    """
    problems = Problems()
    found = read_points(study, lambda path: path, problems)
    problems.raise_any(f"study '{study.name}'")
    assert found is not None
    return found


def trained_first(study: Study) -> Study:
    """The study that is trained first: its points if it has `tune`, otherwise itself.

    Raises:
        InputError: as `points`.
    """
    return study if study.tune is None else points(study).study


def read_points(study: Study, locate: Callable[[str], str], problems: Problems) -> Points | None:
    """`points` with problems instead of an error; None if there are any.

    Args:
        study: a study with `tune`.
        locate: adds the line of the file to the path of a problem.
        problems: receives the problems.
    """
    if study.tune is None:
        raise ValueError(f"study {study.name!r} is not tuned.")
    before = len(problems)
    axes = _axes(study, study.tune, locate, problems)
    content = {"variants": {name: _content(study, name) for name in study.variants}}
    if len(problems) == before:
        check_values(content, axes, study.training, locate, problems)
    if len(problems) > before:
        return None
    grid = expanded_over(content["variants"], axes, locate, problems)
    found = read_variants(None, grid.variants, study.training, problems)
    if len(problems) == before:
        _require_distinct(grid, found, axes, locate, problems)
    if len(problems) > before:
        return None
    expanded = construct(
        lambda: replace(
            study,
            variants=found.models,
            variant_training=found.training,
            references=(),
            own_vocab=tuple(
                point
                for name, names in grid.expanded.items()
                for point in names
                if name in study.own_vocab or any(axis.names[-1] == "vocab" for axis in axes[name])
            ),
            titles={},
            seeds=study.tune.seeds if study.tune is not None else (),
            tune=None,
        ),
        "$",
        problems,
    )
    if expanded is UNREADABLE:
        return None
    values = {
        name: {point: {".".join(axis.names): _value(found, point, axis) for axis in axes[name]} for point in names}
        for name, names in grid.expanded.items()
    }
    over = {name: {".".join(axis.names): axis.values for axis in of} for name, of in axes.items()}
    return Points(study=expanded, values=values, over=over)


def read_tuning(
    content: Mapping[str, Any], grid: Grid, seeds: object, locate: Callable[[str], str], problems: Problems
) -> Tuning | None:
    """Decode `tune` of a study file and of its variants; None without it, or if it has problems.

    Args:
        content: the study file's content.
        grid: its variants, expanded.
        seeds: the study's seeds, decoded.
        locate: adds the line of the file to the path of a problem.
        problems: receives the problems.
    """
    tune, before = content.get("tune"), len(problems)
    own = dict(_own_axes(content.get("variants"), grid, tune is not None, locate, problems))
    if tune is None:
        return None
    given = _known_fields(tune, FIELDS, "$.tune", locate, problems)
    if "seeds" not in given and isinstance(tune, Mapping):
        problems.add(locate("$.tune"), "expected the tuning seeds, got none. Add seeds: [100, 101].")
    if len(problems) > before:
        return None
    if not isinstance(given.get("over"), Mapping | NoneType):
        _refuse_no_mapping(given["over"], "$.tune.over", locate, problems)
    tuning_seeds = read(tuple[int, ...], given["seeds"], locate("$.tune.seeds"), problems)
    _refuse_axes_of_the_grid(given.get("over"), "$.tune.over", grid, locate, problems)
    if len(problems) > before:
        return None
    try:
        tuning = Tuning(seeds=tuning_seeds, over=given.get("over") or {}, own=own)
        if isinstance(seeds, tuple):
            tuning.require_apart(seeds)
        return tuning
    except FieldError as error:
        problems.add(locate(f"$.tune.{error.field}"), error.problem)
        return None


def tuning_content(tuning: Tuning) -> dict[str, Any]:
    """A tuning as the content of a study file, without the axes of single variants."""
    content: dict[str, Any] = encode(tuning)
    return {name: content[name] for name in FIELDS}


def _own_axes(
    variants: object, grid: Grid, is_tuned: bool, locate: Callable[[str], str], problems: Problems
) -> Iterator[tuple[str, Mapping[str, object]]]:
    for name, entry in variants.items() if isinstance(variants, Mapping) else ():
        tune = entry.get("tune") if isinstance(entry, Mapping) else None
        if tune is None:
            continue
        path = f"$.variants.{name}.tune"
        if not is_tuned:
            problems.add(locate(path), "expected the tuning seeds, got none. Set tune.seeds of the study.")
        elif isinstance(tune, Mapping) and "seeds" in tune:
            problems.add(locate(f"{path}.seeds"), "expected one list of tuning seeds for all variants. Set tune.seeds.")
        else:
            over = _known_fields(tune, ("over",), path, locate, problems).get("over") or {}
            _refuse_axes_of_the_grid(over, f"{path}.over", grid, locate, problems)
            if isinstance(over, Mapping):
                yield from ((point, over) for point in grid.expanded.get(name, (name,)))
            else:
                _refuse_no_mapping(over, f"{path}.over", locate, problems)


def _refuse_no_mapping(over: object, path: str, locate: Callable[[str], str], problems: Problems) -> None:
    problems.add(locate(path), f"expected a mapping from fields to lists of values, got {shown(over)}.")


def _known_fields(
    content: object, known: tuple[str, ...], path: str, locate: Callable[[str], str], problems: Problems
) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        problems.add(locate(path), f"expected a mapping with {' and '.join(known)}, got {shown(content)}.")
        return {}
    for name in content:
        if name not in known:
            problems.add(locate(f"{path}.{name}"), f"Tuning has no field {shown(name)}{nearest(name, known)}")
    return content


def _refuse_axes_of_the_grid(
    over: object, path: str, grid: Grid, locate: Callable[[str], str], problems: Problems
) -> None:
    """Refuse an axis that the grid has too: its points would be variants with equal points."""
    in_grid = {place.rpartition("grid.")[2].removeprefix("model.") for at in grid.points.values() for place in at}
    for axis in axes_of(over or None, path, lambda place: place, Problems()):
        if ".".join(axis.names) in in_grid:
            problems.add(
                locate(axis.path), "expected a field that is tuned or in the grid, got it in both. Remove it from one."
            )


def _axes(study: Study, tune: Tuning, locate: Callable[[str], str], problems: Problems) -> dict[str, list[Axis]]:
    shared = axes_of(tune.over or None, "$.tune.over", locate, problems)
    axes = {}
    for name in study.variants:
        own = axes_of(tune.own.get(name) or None, f"$.variants.{name.partition(', ')[0]}.tune.over", locate, problems)
        axes[name] = [*({axis.names: axis for axis in (*shared, *own)}).values()]
    for axis in {axis.path: axis for of in axes.values() for axis in of}.values():
        if len(axis.values) == 1:
            problems.add(
                locate(axis.path),
                f"expected at least two values, got {shown(axis.values[0])} alone. Add values, or set the field itself.",
            )
    untuned = [name for name, of in axes.items() if not of]
    if untuned and not len(problems):
        problems.add(
            locate("$.tune"),
            f"expected at least one axis for every variant, got none for {', '.join(untuned)}. A comparison of tuned "
            "with untuned variants favours the tuned ones: add tune.over, or tune.over of the variant.",
        )
    return axes


def _content(study: Study, name: str) -> dict[str, Any]:
    model: dict[str, Any] = encode(study.variants[name])
    return {**model, "training": training_content(study.training_of(name))}


def _value(found: Variants, point: str, axis: Axis) -> Any:
    """The value of a point on an axis, as it is written in a run's spec."""
    here: Any = {**encode(found.models[point]), "training": encode(found.training[point])}
    for name in axis.names:
        here = here.get(name) if isinstance(here, Mapping) else None
    return here


def _require_distinct(
    grid: Grid, found: Variants, axes: Mapping[str, list[Axis]], locate: Callable[[str], str], problems: Problems
) -> None:
    reported: set[str] = set()
    for variant, names in grid.expanded.items():
        first: dict[str, str] = {}
        path = axes[variant][0].path
        for name in names:
            other = first.setdefault(digest([found.models[name], found.training[name]]), name)
            if other != name and path not in reported:
                reported.add(path)
                problems.add(
                    locate(path),
                    f"expected different points, got {other!r} and {name!r}, which are equal. Remove one of the values.",
                )
