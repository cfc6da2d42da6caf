"""Points of a tuned study: every variant with every combination of the values that it is tuned over.

    tune: {seeds: [100, 101], over: {training.optimizer.learning_rate: [1e-3, 3e-3]}}

The axes are those of a grid. A variant may have its own, `tune: {over: …}`, which add to the study's or replace the one of the
same field. A point is named like a point of a grid: `base, learning_rate 1e-3`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import NoneType
from typing import Any

from addnorm.fields import FieldError
from addnorm.study.decoding import construct, read
from addnorm.study.definition import Study, Training
from addnorm.study.encoding import digest, encode
from addnorm.study.grid import FieldAxis, Grid, axes_of, expanded
from addnorm.study.problems import Problems, nearest, shown
from addnorm.study.tuning import Tuning
from addnorm.study.variants import VariantReader, training_content

FIELDS = tuple(field.name for field in fields(Tuning) if field.name != "own")
"""Names that `tune` of a study file may set."""
_KEPT = "_points"
"""Attribute of a study that holds its points. It is no field: `replace` makes a study without it, whose points are its own."""


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
    """The points of a study with `tune`. They are expanded once, by loading or here, and stay with the study.

    Raises:
        InputError: an axis is wrong, a variant has none, or two points are equal; each with its path.
    """
    # Expanded once and kept with the study, which is immutable: plan, cost and run all ask. It is an attribute that is
    # no field, so `replace` drops it, and a changed study is expanded anew. Compared and encoded studies do not see it
    # either.
    kept: Points | None = vars(study).get(_KEPT)
    return kept if kept is not None else expand_points(study, Problems(f"study '{study.name}'"))


def trained_first(study: Study) -> Study:
    """The study that is trained first: its points if it has `tune`, otherwise itself.

    Raises:
        InputError: as `points`.
    """
    return study if study.tune is None else points(study).study


def expand_points(study: Study, problems: Problems) -> Points:
    """Expand the points of a study that has `tune`, and keep them with it.

    The axes are fields of the variants' specs, whoever wrote them: a file, or Python.

    Args:
        study: the study.
        problems: earlier problems of the study, which are raised too.

    Raises:
        InputError: as `points`.
    """
    tune, before = study.tune, len(problems)
    if tune is None:
        raise ValueError(f"study {study.name!r} is not tuned.")
    axes = _axes(study, tune, problems)
    problems.raise_any(since=before)
    # From decoded models back to plain data, once: the axes of `tune` may apply to a study in Python, which never was a
    # file. Every field is written out here, so nothing of the shared part may be laid below a second time.
    entries = {
        name: {**encode(model), "training": training_content(study.training_of(name))}
        for name, model in study.variants.items()
    }
    # The entries have every field, so nothing is shared; the study's training would bring back fields at their defaults.
    grid = expanded(entries, axes, VariantReader(None, Training(), problems), problems, {})
    if len(problems) == before:
        _require_distinct(grid, axes, problems)
    problems.raise_any()
    expanded_study: Study = construct(
        lambda: replace(
            study,
            variants={name: variant.model for name, variant in grid.variants.items()},
            variant_training={name: own for name, variant in grid.variants.items() if (own := variant.training)},
            references=(),
            compare="equal_axes",
            pairs=(),
            own_vocab=tuple(
                point.name
                for point in grid.points.values()
                if point.base in study.own_vocab or any(axis.names[-1] == "vocab" for axis in axes[point.base])
            ),
            titles={},
            seeds=tune.seeds,
            replicate=(),
            tune=None,
        ),
        "$",
        problems,
    )
    problems.raise_any()
    values: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in study.variants}
    for name, variant in grid.variants.items():
        base = grid.points[name].base
        spec = {**encode(variant.model), "training": encode(variant.training)}
        values[base][name] = {".".join(axis.names): _value(spec, axis) for axis in axes[base]}
    over = {name: {".".join(axis.names): axis.values for axis in of} for name, of in axes.items()}
    expanded_points = Points(study=expanded_study, values=values, over=over)
    object.__setattr__(study, _KEPT, expanded_points)
    return expanded_points


def read_tuning(content: Mapping[str, Any], grid: Grid, seeds: object, problems: Problems) -> Tuning | None:
    """Decode `tune` of a study file and of its variants; None without it, or if it has problems.

    Args:
        content: the study file's content.
        grid: its variants, expanded.
        seeds: the study's seeds, decoded.
        problems: receives the problems.
    """
    tune, before = content.get("tune"), len(problems)
    own = dict(_own_axes(content.get("variants"), grid, tune is not None, problems))
    # Without `tune`, an axis of a single variant has no seeds to be tuned on; that was reported just above.
    if tune is None:
        return None
    given = _known_fields(tune, FIELDS, "$.tune", problems)
    if "seeds" not in given and isinstance(tune, Mapping):
        problems.add_with_line("$.tune", "expected the tuning seeds, got none. Add seeds: [100, 101].")
    if len(problems) > before:
        return None
    if not isinstance(given.get("over"), Mapping | NoneType):
        _refuse_no_mapping(given["over"], "$.tune.over", problems)
    tuning_seeds = read(tuple[int, ...], given["seeds"], problems.locate("$.tune.seeds"), problems)
    _refuse_axes_of_the_grid(given.get("over"), "$.tune.over", grid, problems)
    if len(problems) > before:
        return None
    try:
        tuning = Tuning(seeds=tuning_seeds, over=given.get("over") or {}, own=own)
        if isinstance(seeds, tuple):
            tuning.require_apart(seeds)
        return tuning
    except FieldError as error:
        problems.add_with_line(f"$.tune.{error.field}", error.problem)
        return None


def tuning_content(tuning: Tuning) -> dict[str, Any]:
    """A tuning as the content of a study file, without the axes of single variants."""
    content: dict[str, Any] = encode(tuning)
    return {name: content[name] for name in FIELDS}


def _own_axes(
    variants: object, grid: Grid, is_tuned: bool, problems: Problems
) -> Iterator[tuple[str, Mapping[str, object]]]:
    for name, entry in variants.items() if isinstance(variants, Mapping) else ():
        tune = entry.get("tune") if isinstance(entry, Mapping) else None
        if tune is None:
            continue
        path = f"$.variants.{name}.tune"
        if not is_tuned:
            problems.add_with_line(path, "expected the tuning seeds, got none. Set tune.seeds of the study.")
        elif isinstance(tune, Mapping) and "seeds" in tune:
            problems.add_with_line(
                f"{path}.seeds", "expected one list of tuning seeds for all variants. Set tune.seeds."
            )
        else:
            over = _known_fields(tune, ("over",), path, problems).get("over") or {}
            _refuse_axes_of_the_grid(over, f"{path}.over", grid, problems)
            if isinstance(over, Mapping):
                yield from ((point, over) for point in grid.points_of(name))
            else:
                _refuse_no_mapping(over, f"{path}.over", problems)


def _refuse_no_mapping(over: object, path: str, problems: Problems) -> None:
    problems.add_with_line(path, f"expected a mapping from fields to lists of values, got {shown(over)}.")


def _known_fields(content: object, known: tuple[str, ...], path: str, problems: Problems) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        problems.add_with_line(path, f"expected a mapping with {' and '.join(known)}, got {shown(content)}.")
        return {}
    for name in content:
        if name not in known:
            problems.add_with_line(f"{path}.{name}", f"Tuning has no field {shown(name)}{nearest(name, known)}")
    return content


def _refuse_axes_of_the_grid(over: object, path: str, grid: Grid, problems: Problems) -> None:
    """Refuse an axis that the grid has too: its points would be variants with equal points."""
    in_grid = {
        place.rpartition("grid.")[2].removeprefix("model.") for point in grid.points.values() for place in point.at
    }
    for axis in axes_of(over or None, path, Problems()):
        if ".".join(axis.names) in in_grid:
            problems.add_with_line(
                axis.path, "expected a field that is tuned or in the grid, got it in both. Remove it from one."
            )


def _axes(study: Study, tune: Tuning, problems: Problems) -> dict[str, list[FieldAxis]]:
    shared = axes_of(tune.over or None, "$.tune.over", problems)
    axes = {}
    for name in study.variants:
        own = axes_of(tune.own.get(name) or None, f"$.variants.{name.partition(', ')[0]}.tune.over", problems)
        axes[name] = [*({axis.names: axis for axis in (*shared, *own)}).values()]
    for axis in {axis.path: axis for of in axes.values() for axis in of}.values():
        if len(axis.values) == 1:
            problems.add_with_line(
                axis.path,
                f"expected at least two values, got {shown(axis.values[0])} alone. Add values, or set the field itself.",
            )
    untuned = [name for name, of in axes.items() if not of]
    if untuned and not len(problems):
        problems.add_with_line(
            "$.tune",
            f"expected at least one axis for every variant, got none for {', '.join(untuned)}. A comparison of tuned "
            "with untuned variants favours the tuned ones: add tune.over, or tune.over of the variant.",
        )
    return axes


def _value(spec: Any, axis: FieldAxis) -> Any:
    """The value of a point on an axis, as it is written in a run's spec."""
    for name in axis.names:
        spec = spec.get(name) if isinstance(spec, Mapping) else None
    return spec


def _require_distinct(grid: Grid, axes: Mapping[str, Sequence[FieldAxis]], problems: Problems) -> None:
    first: dict[tuple[str, str], str] = {}
    reported: set[str] = set()
    for name, variant in grid.variants.items():
        base = grid.points[name].base
        path = axes[base][0].path
        other = first.setdefault((base, digest([variant.model, variant.training])), name)
        if other != name and path not in reported:
            reported.add(path)
            problems.add_with_line(
                path,
                f"expected different points, got {other!r} and {name!r}, which are equal. Remove one of the values.",
            )
