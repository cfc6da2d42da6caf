"""Estimate of what a study costs before it starts: runs, tokens, parameters, FLOPs, memory and time.

FLOPs and memory are counted by one training step of each variant on torch's meta device, which has shapes but no numbers.
Time is estimated from the measured speed of a real step of the first variant on this machine.
"""

import heapq
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional as F

from addnorm.fields import JsonFields
from addnorm.model.forward_context import Implementation, sums_all_layers
from addnorm.study.definition import AnyModel, Study, Training
from addnorm.study.foreign import ForeignSpec
from addnorm.supervision.step_cost import StepCost, step_cost
from addnorm.supervision.trial_step import try_plugins

_MEASURED_FLOPS = 3e10
"""Largest step that is timed; larger models are timed with fewer and shorter sequences."""


@dataclass(frozen=True, kw_only=True)
class VariantCost:
    """Cost of one run of a variant."""

    variant: str
    parameters: int
    steps: int
    """Optimizer steps of one run."""
    tokens: int
    """Training tokens of one run."""
    flops_per_token: float
    """Floating-point operations per training token, forward and backward, as the kernels perform them."""
    flops: float
    """Training FLOPs of one run."""
    peak_bytes: int
    """Weights, gradients, optimizer state, activations and buffers at the peak of one step, without Python and torch."""
    seconds: float
    """Estimated time of one run's training steps."""
    relative: float
    """FLOPs per token relative to the first variant."""
    ways: tuple["ScoreSumCost", ...]
    """Cost of each implementation of the sum of scores; empty if no layer sums the scores of others."""


@dataclass(frozen=True, kw_only=True)
class ScoreSumCost:
    """Cost of one run with one implementation of summed scores (the field `attention` of a model)."""

    attention: str
    taken: bool
    """True for the implementation that the variant uses."""
    flops_per_token: float
    peak_bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CostEstimate(JsonFields):
    """Cost of a study."""

    study: str
    runs: int
    seeds: int
    steps: int
    """Optimizer steps of a run of the first variant."""
    tokens_per_run: int
    """Training tokens of a run of the first variant."""
    tokens: int
    """Training tokens of all runs."""
    flops: float
    """Training FLOPs of all runs."""
    workers: int
    threads: int
    seconds: float
    """Estimated time of the study with that many workers, without evaluations and start-up."""
    flops_per_second: float
    """Measured speed of one worker."""
    variants: tuple[VariantCost, ...]
    """Of a tuned study at the most expensive points, because the chosen ones are not known yet."""
    tuning: "TuningCost | None" = None
    """Part of the cost that tuning has; None without it."""


@dataclass(frozen=True, kw_only=True)
class TuningCost:
    """Cost of the tuning runs of a study."""

    runs: int
    seeds: int
    tokens: int
    """Training tokens of all tuning runs."""
    flops: float
    """Training FLOPs of all tuning runs."""
    seconds: float
    """Estimated time with the study's workers."""
    points: dict[str, tuple[str, ...]]
    """Names of the points by variant."""


def with_comparison(tuning: CostEstimate, study: Study, points: Mapping[str, Collection[str]]) -> CostEstimate:
    """Cost of a tuned study: its tuning runs, and the compared runs of each variant at its most expensive point.

    Args:
        tuning: cost of the study's points, as a study of their own.
        study: the tuned study.
        points: names of the points by variant.
    """
    by_point = {cost.variant: cost for cost in tuning.variants}
    most = [
        replace(max((by_point[point] for point in of), key=lambda cost: cost.flops), variant=name)
        for name, of in points.items()
    ]
    costs = tuple(replace(cost, relative=cost.flops_per_token / most[0].flops_per_token) for cost in most)
    seeds = len(study.seeds)
    earlier: dict[str, Any] = {name: getattr(tuning, name) for name in ("runs", "tokens", "flops", "seconds")}
    return replace(
        tuning,
        seeds=seeds,
        steps=costs[0].steps,
        tokens_per_run=costs[0].tokens,
        variants=costs,
        tuning=TuningCost(seeds=tuning.seeds, points={name: tuple(of) for name, of in points.items()}, **earlier),
        **{name: earlier[name] + value for name, value in _sums(costs, seeds, tuning.workers).items()},
    )


def _sums(costs: Sequence[VariantCost], seeds: int, workers: int) -> dict[str, Any]:
    """Cost of the runs of all variants with so many seeds, by the names of `CostEstimate` and `TuningCost`."""
    return {
        "runs": len(costs) * seeds,
        "tokens": sum(cost.tokens for cost in costs) * seeds,
        "flops": sum(cost.flops for cost in costs) * seeds,
        "seconds": makespan([cost.seconds for _ in range(seeds) for cost in costs], workers),
    }


def makespan(seconds: Sequence[float], at_once: int) -> float:
    """End of the last run if each starts, in order, as soon as a place is free."""
    # A heap of the times at which places become free. In the plan's order, not the longest first: that is what the
    # supervisor does, because all variants of a seed are to be compared early.
    free = [0.0] * at_once
    for duration in seconds:
        heapq.heapreplace(free, free[0] + duration)
    return max(free)


def estimate_cost(study: Study, *, workers: int) -> CostEstimate:
    """Estimate the cost of a study whose models have their vocabulary (see `fit_models`).

    Raises:
        InputError: a variant cannot be built, or the code of a plugin fails.
    """
    try_plugins(study)
    steps = {name: step_cost(model, study.training_of(name)) for name, model in study.variants.items()}
    first = next(iter(study.variants))
    speed = measured_speed(study.variants[first], study.training_of(first), steps[first].flops)
    base = steps[first].flops_per_token
    costs = tuple(_variant_cost(study, name, step, speed=speed, base=base) for name, step in steps.items())
    return CostEstimate(
        study=study.name,
        seeds=len(study.seeds),
        steps=costs[0].steps,
        tokens_per_run=costs[0].tokens,
        workers=workers,
        threads=study.training.threads,
        flops_per_second=speed,
        variants=costs,
        **_sums(costs, len(study.seeds), workers),
    )


def _variant_cost(study: Study, name: str, step: "StepCost", *, speed: float, base: float) -> VariantCost:
    training = study.training_of(name)
    return VariantCost(
        variant=name,
        parameters=step.parameters,
        steps=training.steps,
        tokens=training.steps * step.tokens,
        flops_per_token=step.flops_per_token,
        flops=step.run_flops(training),
        peak_bytes=step.peak_bytes,
        seconds=step.run_seconds(training, speed),
        relative=step.flops_per_token / base,
        ways=tuple(_score_sum_costs(study.variants[name], training, speed, step)),
    )


def _score_sum_costs(
    model: AnyModel, training: Training, speed: float, as_configured: "StepCost"
) -> Iterator[ScoreSumCost]:
    if isinstance(model, ForeignSpec):
        return
    with torch.device("meta"):
        scores = model.build_scores()
        replays, sinks = model.residual.replays, model.build_sinks()
    if model.depth < 2 or scores.terms(1) == 1:
        return
    taken = as_configured.kept_scores or ("streaming" if model.attention == "auto" else model.attention)
    ways: tuple[Implementation, ...] = ("streaming",)
    if not replays and sinks is None and scores.shared_weight(0) is not None:
        ways = ("running", "streaming")
    elif not replays and sinks is None and sums_all_layers(scores, model.attention_shape.depth):
        ways = ("stored", "streaming")
    for attention in ways:
        step = step_cost(replace(model, attention=attention), training)
        yield ScoreSumCost(
            attention=attention,
            taken=attention == taken,
            flops_per_token=step.flops_per_token,
            peak_bytes=step.peak_bytes,
            seconds=step.run_seconds(training, speed),
        )


def measured_speed(model: AnyModel, training: Training, flops: int) -> float:
    """FLOPs per second of a real training step on this machine with the study's number of threads, the best of three.

    Args:
        model: the model to train.
        training: the study's training; a step above the limit is timed with a smaller batch, then shorter sequences.
        flops: FLOPs of a whole step.
    """
    # Time per FLOP hardly depends on the batch, so a model too large for seconds of patience is timed on a part of its
    # step. Sequences are cut last and not below 32: attention's share of the FLOPs depends on them.
    small = training
    while flops > _MEASURED_FLOPS and (small.batch > 1 or small.seq > 32):
        share = _MEASURED_FLOPS / flops
        if small.batch > 1:
            small = replace(small, batch=max(1, int(small.batch * share)))
        else:
            small = replace(small, seq=max(32, int(small.seq * share)))
        flops = step_cost(model, small).flops
    if flops > 50 * _MEASURED_FLOPS:
        return _matrix_speed()
    threads = torch.get_num_threads()
    torch.set_num_threads(training.threads)
    try:
        built = model.build().train()
        tokens = torch.zeros(small.batch, small.seq, dtype=torch.int64)
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            F.cross_entropy(built(tokens).flatten(0, 1), tokens.flatten()).backward()
            best = min(best, time.perf_counter() - start)
        return flops / best
    finally:
        torch.set_num_threads(threads)


def _matrix_speed() -> float:
    """Half the FLOPs per second of a large matrix product: the speed assumed for models too large to be timed."""
    a = torch.randn(1024, 1024)
    start = time.perf_counter()
    for _ in range(4):
        a @ a
    return 4 * 2 * 1024**3 / (time.perf_counter() - start) / 2
