"""Check of a scheduler's time limit: an attempt must get at least as far as its next checkpoint."""

import math
from pathlib import Path

from addnorm.errors import InputError
from addnorm.store import Damaged, StudyFolder
from addnorm.study.definition import Study
from addnorm.study.executor import ExecutorSpec
from addnorm.supervision.cost_estimate import measured_speed, step_cost


def require_checkpoint_in_time(study: Study, executor: ExecutorSpec, out: Path) -> None:
    """Refuse a time limit within which a run would not reach its next checkpoint.

    The time of a step is that of the folder's earlier attempts. Without any, it is measured here, as `addnorm plan` does,
    for executors that train on the same kind of device.

    Args:
        study: the study; its models have their vocabulary (see `fit_models`).
        executor: the executor's settings.
        out: the study's folder, which need not exist.

    Raises:
        InputError: the limit is shorter than one checkpoint interval of a variant.
    """
    limit_s = executor.longest_attempt_s
    if math.isinf(limit_s):
        return
    recorded = _recorded_speeds(out)
    flops_per_s = 0.0
    for variant, model in study.variants.items():
        training = study.training_of(variant)
        steps = min(training.checkpoint_every, training.steps)
        if variant in recorded:
            step_s, source = training.batch * training.seq / recorded[variant], "in its earlier attempts"
        elif executor.trains_on_gpus:
            continue  # this machine's speed says nothing about theirs
        else:
            flops = step_cost(model, training).flops
            flops_per_s = flops_per_s or measured_speed(model, training, flops)
            step_s, source = flops / flops_per_s, "at the speed measured on this machine"
        _require(executor, variant, steps, steps * step_s, source)


def _require(executor: ExecutorSpec, variant: str, steps: int, interval_s: float, source: str) -> None:
    if interval_s > executor.longest_attempt_s:
        raise InputError(
            f"executor.time_limit: expected at least one checkpoint interval, got {executor.longest_attempt_s:.0f} s of "
            f"training: variant {variant!r} takes {interval_s:.0f} s for {steps} steps {source}. Raise "
            "the time limit or lower training.checkpoint_every."
        )


def _recorded_speeds(out: Path) -> dict[str, float]:
    """Tokens per second by variant, from the newest training event of its fastest run."""
    speeds: dict[str, float] = {}
    for run in StudyFolder(out).all_runs() if (out / "study.json").exists() else ():
        try:
            newest = run.newest("train") or {}
        except Damaged:
            continue  # the supervisor tells about it
        speed = float(newest.get("tokens_per_s", 0.0))
        if speed > 0:
            variant = run.spec["variant"]
            speeds[variant] = max(speeds.get(variant, 0.0), speed)
    return speeds
