"""Estimate of a study on a cluster that is described by numbers: what fits, how long, how much storage and network.

Nothing is measured. FLOPs and memory are the counted ones of the cost estimate; the speed of a device is the one given, which
should be what it sustains in training (a third to a half of its data sheet), not its peak.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from addnorm.errors import InputError, did_you_mean
from addnorm.fields import JsonFields
from addnorm.model.spec import ModelSpec
from addnorm.study.definition import AnyModel, Study, Training
from addnorm.supervision.cost_estimate import makespan
from addnorm.supervision.step_cost import step_cost
from addnorm.supervision.trial_step import try_plugins
from addnorm.training.checkpoint import KEPT

_FIELDS = {"gpus": "a whole number of devices", "tflops": "TFLOP/s that each sustains", "memory": "GB of each"}
_OPTIONAL = {"link": "GB/s between two devices"}
_EXAMPLE = "--cluster gpus=64,tflops=400,memory=80"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A number of equal devices."""

    gpus: int
    flops_per_second: float
    """Speed that one device sustains in training."""
    memory_bytes: int
    """Memory of one device."""
    link_bytes_per_second: float | None = None
    """Speed between two devices, in one direction; None if not given."""

    @classmethod
    def parse(cls, text: str) -> "Cluster":
        """Read `gpus=64,tflops=400,memory=80`, with `link=50` for the speed of the network.

        Raises:
            InputError: an unknown or missing name, or a value that is not a positive number.
        """
        values: dict[str, float] = {}
        known = {**_FIELDS, **_OPTIONAL}
        for entry in text.split(","):
            name, _, value = entry.partition("=")
            name = name.strip()
            if name not in known:
                raise InputError(
                    f"--cluster: expected {', '.join(known)}, got {name!r}.{did_you_mean(name, known)} Example: {_EXAMPLE}"
                )
            values[name] = _positive(name, value, known[name])
        missing = [name for name in _FIELDS if name not in values]
        if missing:
            raise InputError(
                f"--cluster: expected {', '.join(_FIELDS)}, got no {', '.join(missing)}. Example: {_EXAMPLE}"
            )
        return cls(
            gpus=int(values["gpus"]),
            flops_per_second=values["tflops"] * 1e12,
            memory_bytes=round(values["memory"] * 1e9),
            link_bytes_per_second=values["link"] * 1e9 if "link" in values else None,
        )


def _positive(name: str, text: str, meaning: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf") or (name == "gpus" and value != int(value)):
        raise InputError(f"--cluster: {name}: expected {meaning}, a positive number, got {text!r}. Example: {_EXAMPLE}")
    return value


@dataclass(frozen=True, kw_only=True)
class VariantOnCluster:
    """One run of a variant on a cluster."""

    variant: str
    devices: int
    """Devices of one run."""
    parameters: int
    flops: float
    """Training FLOPs of one run."""
    peak_bytes: int
    """On each of them."""
    runs_per_device: int
    """Runs that fit on a device together, for `executor.pack`; 0 if none fits. Packing saves time only where one run leaves a
    device idle."""
    seconds: float
    """Time of one run's training steps."""
    storage_bytes: int
    """Checkpoints and final weights of one run."""
    tree_bytes: int
    """Bytes that each device sends in a step to sum gradients as a tree, log2(devices) times all gradients."""
    ring_bytes: int
    """Bytes that it would send in a ring, whose order of sums depends on the number of devices."""
    tree_seconds: float | None
    """Time of the sums in one run at the speed of the link; None without one. Not part of `seconds`."""
    remedy: str | None
    """Setting with which a run fits that does not; None if it fits, or if no setting helps."""


@dataclass(frozen=True, kw_only=True)
class ClusterEstimate(JsonFields):
    """A study on a cluster."""

    study: str
    runs: int
    gpus: int
    at_once: int
    """Runs trained at the same time, one per device or group of devices."""
    seconds: float
    """From the first step to the last, if the runs start in the plan's order as devices become free."""
    device_hours: float
    storage_bytes: int
    """Of all runs."""
    variants: tuple[VariantOnCluster, ...]


def estimate_on_cluster(study: Study, cluster: Cluster) -> ClusterEstimate:
    """Estimate a study on a cluster.

    Args:
        study: the study; its models have their vocabulary (see `fit_models`).
        cluster: the devices.

    Raises:
        InputError: a run needs more devices than there are, or the code of a plugin fails.
    """
    try_plugins(study)
    devices = study.training.devices
    if devices > cluster.gpus:
        raise InputError(
            f"training.devices: expected at most the {cluster.gpus} devices of --cluster, got {devices}. Lower it, which "
            "changes no result."
        )
    variants = tuple(_on_cluster(study, name, cluster) for name in study.variants)
    at_once = cluster.gpus // devices
    run_seconds = [variant.seconds for _ in study.seeds for variant in variants]
    return ClusterEstimate(
        study=study.name,
        runs=len(run_seconds),
        gpus=cluster.gpus,
        at_once=at_once,
        seconds=makespan(run_seconds, at_once),
        device_hours=sum(run_seconds) * devices / 3600,
        storage_bytes=len(study.seeds) * sum(variant.storage_bytes for variant in variants),
        variants=variants,
    )


def with_comparison_on_cluster(
    tuning: ClusterEstimate, study: Study, points: Mapping[str, Collection[str]]
) -> ClusterEstimate:
    """The same of a tuned study: its tuning runs, then the compared runs of each variant at its most expensive point.

    Args:
        tuning: estimate of the study's points, as a study of their own.
        study: the tuned study.
        points: names of the points by variant.
    """
    by_point = {each.variant: each for each in tuning.variants}
    most = [max((by_point[point] for point in of), key=lambda each: each.flops) for of in points.values()]
    runs = [each.seconds for _ in study.seeds for each in most]
    return replace(
        tuning,
        runs=tuning.runs + len(runs),
        seconds=tuning.seconds + makespan(runs, tuning.at_once),
        device_hours=tuning.device_hours + sum(runs) * study.training.devices / 3600,
        storage_bytes=tuning.storage_bytes + len(study.seeds) * sum(each.storage_bytes for each in most),
    )


def _on_cluster(study: Study, name: str, cluster: Cluster) -> VariantOnCluster:
    model, training = study.variants[name], study.training_of(name)
    step = step_cost(model, training)
    fits = step.peak_bytes <= cluster.memory_bytes
    devices = training.devices
    ring = 2 * (devices - 1) / devices * step.weight_bytes
    tree = (devices.bit_length() - 1) * step.weight_bytes
    if training.parallel == "sharded":
        # Each shard gathers the weights for both passes and reduces its gradient: three parts of a ring, halving as much.
        tree = round(1.5 * ring * ((training.shards or 1) // devices))
    link = cluster.link_bytes_per_second
    return VariantOnCluster(
        variant=name,
        devices=devices,
        parameters=step.parameters,
        flops=step.run_flops(training),
        peak_bytes=step.peak_bytes,
        runs_per_device=cluster.memory_bytes // step.peak_bytes,
        seconds=step.run_seconds(training, cluster.flops_per_second),
        storage_bytes=KEPT * (step.weight_bytes + step.state_bytes) + step.weight_bytes,
        tree_bytes=tree,
        ring_bytes=round(ring),
        tree_seconds=tree / link * training.steps if link is not None else None,
        remedy=None if fits else _remedy(model, training, cluster.memory_bytes),
    )


def _remedy(model: AnyModel, training: Training, memory_bytes: int) -> str | None:
    """The first setting with which a step fits."""
    for changed, text in _settings(model, training):
        if step_cost(model, changed).peak_bytes <= memory_bytes:
            return text
    return None


def _settings(model: AnyModel, training: Training) -> Iterator[tuple[Training, str]]:
    """Settings that lower the memory of a step and leave the model as it is, those that change least first."""
    ours = isinstance(model, ModelSpec)
    separate = isinstance(model, ModelSpec) and not model.residual.replays
    can_share = separate and training.devices > 1 and training.optimizer.entrywise and not training.compile
    if can_share and training.parallel == "replicated":
        yield replace(training, parallel="sharded"), "training.parallel=sharded"
    if ours:
        yield replace(training, recompute=True), "training.recompute=true"
    shards, largest = training.shards or 1, training.batch & -training.batch
    while shards < largest:
        shards *= 2
        for recompute in (False, True) if ours else (False,):
            text = f"training.shards={shards}" + (" and training.recompute=true" if recompute else "")
            yield replace(training, shards=shards, recompute=recompute or training.recompute), text
