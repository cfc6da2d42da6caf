"""`addnorm.ablate`: does a coefficient do anything? The change of held-out loss when it is set to its neutral value.

The coefficients of a mechanism are grouped by name, those of all layers together. A group's neutral value is the one with which
the mechanism declares to equal its room's plain one (`reduces_to`); where it declares none, the group returns to its start. All
else stays as trained. The measures of a run are written to RUN/ablation.json:

    {"format": 2, "run", "variant", "seed", "addnorm", "weights", "data",     as in insight.json
     "loss",                                                                   nats per scored token, as trained
     "groups": [{"group", "set_to": "neutral" | "start", "entries", "loss", "change", "gauge"}]}

A group is a `gauge` if other parameters can absorb every change of it (`addnorm.insight.identifiable`). A group `ROOM (all)`
is all groups of a mechanism at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor

from addnorm.catalogue import JOINT_ROOMS, ROOMS, family_of
from addnorm.errors import InputError
from addnorm.insight.flow.measure import Windows
from addnorm.insight.flow.runs import Settings, measured_once, over_runs
from addnorm.insight.identifiable import gauges
from addnorm.model.neutral import declared_value
from addnorm.model.presets import FIELD_OF_ROOM, belongs
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.reduction import Reducible, Reduction
from addnorm.statistics.over_seeds import mean_over_seeds
from addnorm.store import RunFolder
from addnorm.study.plugins import load_plugins
from addnorm.training.numerics import device_here
from addnorm.training.objective import Batch, loss_sums
from addnorm.training.run_weights import RunWeights

ABLATION = "ablation.json"
"""Name of the file in the run's folder."""
FORMAT = 2

SetTo = Literal["neutral", "start"]


def ablate(
    path: str | Path,
    *,
    sequences: int = 16,
    plugins: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Set each group of learned coefficients to its neutral value, and measure how much worse the model gets.

    Results that are there already are not computed again. The command is `addnorm inspect --ablate`.

    Args:
        path: folder of a run, or of a study for all of its runs.
        sequences: held-out sequences.
        plugins: files with the user's own mechanisms that the runs use.
        say: receives a line of text before each run that is measured.

    Returns:
        `runs`, each as its `ablation.json` (see `addnorm.insight.ablation`); `over_seeds`, the mean change of every variant's
        groups with the ends `low` and `high` of Student's interval over seeds (95 %, for that mean alone; None with one
        seed); and `skipped` runs with the reason.

    Raises:
        InputError: the path is neither a study nor a run; `sequences` is below one; no run can be measured.
        Damaged: files of the run are damaged.
        JobError: the disk refused a file.

    Example:
        >>> ablated = addnorm.ablate("runs/first", sequences=2)
        >>> sorted({row["group"] for row in ablated["over_seeds"]})[0]
        'residual.alpha'
    """
    load_plugins(plugins, Path.cwd())
    settings = Settings(sequences=sequences, map_sequences=1)
    measured = over_runs(Path(path), lambda run: ablate_run(run, settings, say=say))
    return measured | {"over_seeds": _over_seeds(measured["runs"])}


def ablate_run(run: RunFolder, settings: Settings, *, say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Measure a run and write its ablation.json, unless the file already holds these measures.

    Raises:
        InputError: no weights yet, a plug-in that is not loaded, or other data than in training.
        Damaged, JobError: the run's files are damaged, or cannot be written.
    """

    def measured(weights: RunWeights, windows: Windows) -> dict[str, Any]:
        say(f"Ablating {run.name}.")
        return ablations(weights.model().to(device_here()), weights.initial_model(), windows.batches)

    return measured_once(run, settings, ABLATION, FORMAT, measured)


def ablations(model: Transformer, start: Transformer, batches: Sequence[Batch]) -> dict[str, Any]:
    """Measure the loss of a model as it is, and with each group at its neutral value.

    Args:
        model: with its weights; they are the same afterwards.
        start: the same model before training.
        batches: held-out text.
    """
    # Neutral where the mechanism says what makes it plain, the start otherwise: zero would switch some mechanisms off
    # and break others, so that a large change would say nothing about what was learned.
    neutral, at_start = neutral_values(cast(ModelSpec, model.spec)), dict(start.named_parameters())
    groups: dict[str, list[str]] = {}
    for name, _ in model.named_parameters():
        room = room_of(name)
        if room is not None:
            groups.setdefault(group_of(name, room), []).append(name)
    for room in JOINT_ROOMS:
        of_room = [names for group, names in groups.items() if group.startswith(f"{room}.")]
        if len(of_room) > 1:
            names = [name for names in of_room for name in names]
            # Where a declaration leaves a parameter open, the others make the mechanism plain.
            groups[f"{room} (all)"] = [name for name in names if name in neutral] or names
    loss = _loss(model, batches)
    # Other parameters can absorb every change of these, so that a loss says how well they fit, not what the numbers do.
    absorbed = gauges(cast(ModelSpec, model.spec), groups)
    rows = []
    for group, names in groups.items():
        values = {name: neutral.get(name, at_start[name]) for name in names}
        changed = _loss_with(model, values, batches)
        rows.append(
            {
                "group": group,
                "set_to": "neutral" if all(name in neutral for name in names) else "start",
                "entries": sum(value.numel() for value in values.values()),
                "loss": changed,
                "change": changed - loss,
                "gauge": group in absorbed,
            }
        )
    return {"loss": loss, "groups": rows}


def room_of(name: str) -> str | None:
    """The room of the mechanism that a parameter belongs to; None for those of other parts of the model."""
    return next((room for room in JOINT_ROOMS if belongs(name, room)), None)


def group_of(name: str, room: str) -> str:
    """The group of a parameter: its mechanism and its name, without the numbers of layers."""
    own = f".{name}".partition(f".{FIELD_OF_ROOM[room]}.")[2]
    return family_of(f"{room}.{own}")


def neutral_values(spec: ModelSpec) -> dict[str, Tensor]:
    """The values of parameters with which mechanisms declare to equal the plain ones of their rooms."""
    values: dict[str, Tensor] = {}
    for room in JOINT_ROOMS:
        field = FIELD_OF_ROOM[room]
        sibling = getattr(spec, field)
        declared = sibling.reduces_to() if isinstance(sibling, Reducible) else None
        plain = [each for each in declared or () if dict(each.to) == {field: ROOMS[room].plain}]
        siblings = [(type(sibling)(**each.settings), each) for each in plain]
        # Settings of another form may give the same names other meanings: the nearest declaration counts first.
        for reduced, reduction in sorted(siblings, key=lambda pair: _settings_apart(pair[0], sibling)):
            for name, value in _values_of(spec, room, reduced, reduction).items():
                values.setdefault(name, value)
    return values


def _settings_apart(one: Any, other: Any) -> int:
    return sum(getattr(one, each.name) != getattr(other, each.name) for each in fields(one))


def _values_of(spec: ModelSpec, room: str, sibling: Any, reduction: Reduction) -> dict[str, Tensor]:
    """Values that a reduction gives to parameters of this model, by name."""
    try:
        reduced = replace(spec, **{FIELD_OF_ROOM[room]: sibling}).build()
    except InputError:
        return {}  # settings that do not fit these sizes
    shapes = {name: parameter.shape for name, parameter in spec.build().named_parameters()}
    declared = {}
    for name, parameter in reduced.named_parameters():
        if not belongs(name, room) or shapes.get(name) != parameter.shape:
            continue
        value = declared_value(name, parameter.detach(), reduction.parameters)
        if value is not None:
            declared[name] = value
    return declared


@torch.no_grad()
def _loss_with(model: Transformer, values: Mapping[str, Tensor], batches: Sequence[Batch]) -> float:
    parameters = dict(model.named_parameters())
    kept = {name: parameters[name].clone() for name in values}
    try:
        for name, value in values.items():
            parameters[name].copy_(value)
        return _loss(model, batches)
    finally:
        for name, value in kept.items():
            parameters[name].copy_(value)


@torch.no_grad()
def _loss(model: Transformer, batches: Sequence[Batch]) -> float:
    sums = [loss_sums(model(batch.inputs), batch) for batch in batches]
    return sum(float(part.nats) for part in sums) / sum(part.count for part in sums)


def _over_seeds(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    changes: dict[tuple[str, str, SetTo], list[float]] = {}
    for run in runs:
        for row in run["groups"]:
            changes.setdefault((run["variant"], row["group"], row["set_to"]), []).append(row["change"])
    return [
        {"variant": variant, "group": group, "set_to": set_to} | asdict(mean_over_seeds(values))
        for (variant, group, set_to), values in changes.items()
    ]
