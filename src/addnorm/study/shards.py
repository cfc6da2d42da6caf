"""Shards of a batch, where a study does not say how many: they decide the order of sums, and so the last bits of a run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from addnorm.errors import InputError
from addnorm.study.definition import Study, Training

MOST = 8
"""Largest number of shards that is chosen for a study."""


def resolve_shards(study: Study, plan: Mapping[str, Any] | None = None) -> Study:
    """Set the shards of every variant that leaves them open.

    Args:
        study: the study.
        plan: the frozen plan of the study's folder, if there is one; its shards are kept, so that a study may go on with
            another number of devices.

    Raises:
        InputError: the plan's shards are fewer than the devices.
    """
    frozen = {run["variant"]: run["spec"]["training"].get("shards") for run in (plan or {}).get("runs", ())}
    trainings = {}
    for name in study.variants:
        own = study.training_of(name)
        if own.shards is None:
            shards = frozen[name] if name in frozen else _chosen(own)
            if own.devices > (shards or 1):
                raise InputError(
                    f"study '{study.name}': $.training.devices: expected at most the shards of the study's plan, "
                    f"{shards or 1}, got {own.devices}. Set training.devices to that, or train in another folder with more "
                    "shards."
                )
            own = replace(own, shards=shards)
        trainings[name] = own
    if all(own == study.training_of(name) for name, own in trainings.items()):
        return study
    shared = trainings[next(iter(trainings))] if study.training.shards is None else study.training
    return replace(
        study, training=shared, variant_training={name: own for name, own in trainings.items() if own != shared}
    )


def _chosen(training: Training) -> int | None:
    """The largest power of two up to 8 that divides the batch; None, which is one shard, on one device."""
    if training.devices == 1:
        return None
    return largest_power(training.batch, MOST)


def largest_power(batch: int, most: int) -> int:
    """The largest power of two up to `most` that divides the batch."""
    return min(batch & -batch, 1 << (most.bit_length() - 1))
