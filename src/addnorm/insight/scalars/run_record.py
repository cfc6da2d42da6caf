"""The explanation of a run from `scalars.safetensors`, in which its worker records every step."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from addnorm.catalogue import JOINT_ROOMS, family_of
from addnorm.errors import InputError
from addnorm.insight.identifiable import gauges, groups_of
from addnorm.insight.scalars.coefficients import (
    Coefficient,
    coefficients,
    parameter_and_index,
    recorded_coefficients,
)
from addnorm.insight.scalars.directions import ROUNDING, RedundantDirection, lockstep, redundant_directions
from addnorm.insight.scalars.explanation import Explanation
from addnorm.insight.scalars.scalar import LearnedScalar
from addnorm.model.presets import preset
from addnorm.model.spec import ModelSpec
from addnorm.store import RunFolder
from addnorm.store.scalar_record import NAME, ScalarRecord
from addnorm.study.foreign import ForeignSpec
from addnorm.training.run_spec import run_spec

_SMALL = {"vocab": 16, "width": 8, "depth": 3, "heads": 2, "hidden": 8, "max_seq": 8}


def explain_run(run: RunFolder, *, norms: bool = False) -> Explanation:
    """Explain a run that has reached a checkpoint or its end.

    Args:
        run: the run's folder.
        norms: include the gains and shifts of norms.

    Raises:
        InputError: the run has no record of its scalars, its model has no mechanism of this library, or its spec names a
            plugin that is not loaded.
        Damaged: the record is not whole.
    """
    path = run.path / NAME
    if not path.exists():
        raise InputError(
            f"{run.path} has no record of learned scalars yet (scalars.safetensors): it is written with each checkpoint. "
            f"The run is {run.status().state}."
        )
    spec = run_spec(run)
    is_foreign = isinstance(spec.model, ForeignSpec)
    model = _with_mechanisms_of(spec.model) if isinstance(spec.model, ForeignSpec) else spec.model
    record = ScalarRecord.read(path)
    values = record.arrays["value"]
    effective = (
        recorded_coefficients(record.effective, values) if is_foreign else coefficients(model, record.names, values)
    )
    columns = record.columns(norms=norms)
    scalars = _scalars(record, columns, effective)
    position_of = {column: position for position, column in enumerate(columns)}
    directions, too_few_steps = _directions(record, position_of)
    pairs = [(group.members[0], group.members[1]) for group in directions if len(group.members) == 2]
    shares_left = np.exp(record.arrays["log_kept"][columns]) if columns else np.ones(1)
    return Explanation(
        run=run.name,
        variant=spec.variant,
        seed=spec.seed,
        model=model,
        decay_factor=float(shares_left.min()),
        steps=record.steps,
        scalars=scalars,
        directions=directions,
        too_few_steps=too_few_steps,
        pairs=lockstep(scalars, pairs),
        gauges=_absorbed(model, scalars),
    )


def _with_mechanisms_of(foreign: ForeignSpec) -> ModelSpec:
    """A small model of ours with the mechanisms that a patch puts into a model of others.

    It gives their formulas, and tells which of their numbers are gauges: both are properties of a mechanism at any size.

    Raises:
        InputError: there is no patch.
    """
    mechanisms = foreign.mechanisms()
    if not mechanisms:
        raise InputError(
            "expected learned scalars of addnorm's mechanisms, which only a patch puts into a model of others, got one without."
        )
    return preset("llama", **_SMALL, **mechanisms)


def _directions(
    record: ScalarRecord, position_of: Mapping[int, int]
) -> tuple[tuple[RedundantDirection, ...], tuple[str, ...]]:
    """Redundant directions of every mechanism with a factor `R.OWNER`, and the owners with too few steps."""
    directions: list[RedundantDirection] = []
    too_few_steps: list[str] = []
    for key in sorted(record.arrays):
        owner = key.removeprefix("R.")
        columns = [column for column, name in enumerate(record.names) if name.startswith(f"{owner}.")]
        if key == owner or not all(column in position_of for column in columns):
            continue
        positions = [position_of[column] for column in columns]
        of_owner = redundant_directions(record.arrays[key], record.steps, positions)
        if of_owner is None:
            too_few_steps.append(owner)
        else:
            directions.extend(of_owner)
    return tuple(directions), tuple(too_few_steps)


def _owner(name: str) -> str:
    """Path of the mechanism that owns a scalar: a mechanism of the whole model, or one in a layer."""
    return name.rpartition(".")[0] if name.startswith("layers.") else name.partition(".")[0]


def _scalars(
    record: ScalarRecord, columns: Sequence[int], effective: Sequence[Coefficient]
) -> tuple[LearnedScalar, ...]:
    sizes, decay_only = record.arrays["mean_absolute"].tolist(), record.decay_only
    largest_gradient: dict[str, float] = defaultdict(float)
    for name, size in zip(record.names, sizes, strict=True):
        largest_gradient[_owner(name)] = max(largest_gradient[_owner(name)], size)
    scalars = []
    for column in columns:
        name = record.names[column]
        parameter, index = parameter_and_index(name)
        of_this = {key: float(record.arrays[key][column]) for key in ("init", "value", "decay", "gradient")}
        scalars.append(
            LearnedScalar(
                parameter=parameter,
                layer=effective[column].layer,
                index=index,
                effective=effective[column].value,
                init=of_this["init"],
                final=of_this["value"],
                decay_only=float(decay_only[column]),
                decay_move=of_this["decay"],
                gradient_move=of_this["gradient"],
                snr=record.snr(column),
                # Against the largest gradient of its own mechanism: rounding errors of a sum have the size of its
                # largest part.
                driven=sizes[column] > ROUNDING * largest_gradient[_owner(name)],
            )
        )
    return tuple(scalars)


def _absorbed(spec: ModelSpec, scalars: Sequence[LearnedScalar]) -> dict[str, tuple[str, ...]]:
    """The groups of a joint's scalars of which other parameters can absorb every change, and the families that do it."""
    with torch.device("meta"):
        names = [name for own in groups_of(spec.build(), JOINT_ROOMS).values() for name in own]
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[family_of(name)].append(name)
    kept = {family_of(each.parameter) for each in scalars}
    return gauges(spec, {group: own for group, own in groups.items() if group in kept}, in_turn=True)
