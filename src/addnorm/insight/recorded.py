"""A run's learned scalars, explained from what its worker recorded step by step."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from safetensors import safe_open

from addnorm.errors import InputError
from addnorm.insight.coefficients import coefficients, formula, mechanism, position_of
from addnorm.insight.explained import Explained
from addnorm.insight.learned import ROUNDING, Direction, Entry, lockstep, redundant_directions
from addnorm.store import RunFolder
from addnorm.study.codec import decode
from addnorm.study.definition import RunSpec

_NORMS = re.compile(r"(^|\.)\w*norm\.")


def explain_run(run: RunFolder, *, norms: bool = False) -> Explained:
    """Explain a run that has reached a checkpoint or its end.

    Args:
        norms: also the gains and shifts of the norms, which are many and seldom asked for.

    Raises:
        InputError: the run has no record of its scalars, or was made with a plugin that is not loaded.
    """
    path = run.path / "scalars.safetensors"
    if not path.exists():
        raise InputError(
            f"{run.path} has no record of learned scalars yet (scalars.safetensors): it is written with each checkpoint. "
            f"The run is {run.status().state}."
        )
    spec = decode(RunSpec, run.spec["spec"])
    with safe_open(path, framework="np") as file:
        names = json.loads(file.metadata()["names"])
        record = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  safe_open is no mapping
    keep = [place for place, name in enumerate(names) if norms or not _NORMS.search(name)]
    entries = _entries(names, keep, record, coefficients(spec.model, names, record["value"]))
    directions: list[Direction] = []
    too_few: list[str] = []
    steps = int(record["steps"])
    place_of = {old: new for new, old in enumerate(keep)}
    for key in sorted(record):
        owner = key.removeprefix("R.")
        at = [place for place, name in enumerate(names) if name.startswith(f"{owner}.")]
        if key == owner or not all(place in place_of for place in at):
            continue
        found = redundant_directions(record[key], steps, [place_of[place] for place in at])
        if found is None:
            too_few.append(owner)
        else:
            directions.extend(found)
    pairs = [(found.entries[0], found.entries[1]) for found in directions if len(found.entries) == 2]
    kept = np.exp(record["log_kept"][keep]) if keep else np.ones(1)
    return Explained(
        run=run.name,
        variant=spec.variant,
        seed=spec.seed,
        mechanism=mechanism(spec.model),
        formula=formula(spec.model),
        decay_factor=float(kept.min()),
        steps=steps,
        entries=entries,
        directions=tuple(directions),
        too_few_steps=tuple(too_few),
        pairs=lockstep(entries, pairs),
    )


def _owner(name: str) -> str:
    """The mechanism that an entry belongs to: the model's only one of its room, or one in a layer."""
    return name.rpartition(".")[0] if name.startswith("layers.") else name.partition(".")[0]


def _entries(
    names: Sequence[str],
    keep: Sequence[int],
    record: Mapping[str, np.ndarray],
    effective: Mapping[int, tuple[Any, float]],
) -> tuple[Entry, ...]:
    steps = int(record["steps"])
    largest: dict[str, float] = defaultdict(float)
    for place, name in enumerate(names):
        owner = _owner(name)
        largest[owner] = max(largest[owner], float(record["mean_absolute"][place]))
    found = []
    for place in keep:
        name = names[place]
        mean, square = float(record["mean"][place]), float(record["mean_square"][place])
        error = math.sqrt(max(square - mean * mean, 0.0) / (steps - 1)) if steps > 1 else 0.0
        found.append(
            Entry(
                **position_of(name, effective[place][0]),
                effective=effective[place][1],
                init=float(record["init"][place]),
                final=float(record["value"][place]),
                decay_only=float(record["init"][place] * np.exp(record["log_kept"][place])),
                decay_move=float(record["decay"][place]),
                gradient_move=float(record["gradient"][place]),
                snr=abs(mean) / error if error > 0 else None,
                driven=float(record["mean_absolute"][place]) > ROUNDING * largest[_owner(name)],
            )
        )
    return tuple(found)
