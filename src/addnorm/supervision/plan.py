"""What a study will cost, said before anything starts: runs, tokens, parameters, FLOPs, memory, time.

FLOPs and saved activations are counted, not estimated: one training step of each variant runs on torch's meta device, which
has shapes and no numbers. Time is estimated from the speed of a real step of the first variant on this machine.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from addnorm.kernels.grouped_attention import counting_at_once
from addnorm.model.forward_context import keeps_running_sum
from addnorm.model.spec import ModelSpec
from addnorm.optimization.optimizers import OptimizerSpec
from addnorm.study.definition import Study, Training

_PROBE_FLOPS = 3e10
"""Largest step that is run for real to measure the speed; bigger models are measured with fewer, shorter sequences."""


@dataclass(frozen=True, kw_only=True)
class VariantCost:
    """What one run of a variant costs."""

    variant: str
    parameters: int
    flops_per_token: float
    """Floating-point operations per training token, forward and backward, as the kernels perform them."""
    peak_bytes: int
    """Weights, gradients, optimizer state and saved activations of one step. What Python and torch need comes on top."""
    seconds: float
    """Estimated time of one run's training steps."""
    relative: float
    """FLOPs per token over those of the first variant."""
    ways: tuple["WayCost", ...]
    """Where scores of several layers are summed: what each way of computing them would cost; else empty."""


@dataclass(frozen=True, kw_only=True)
class WayCost:
    """What one run costs if summed scores are computed this way (`attention` of a model)."""

    attention: str
    taken: bool
    """Whether the variant as it stands takes this way."""
    flops_per_token: float
    peak_bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cost of a study."""

    study: str
    runs: int
    seeds: int
    steps: int
    tokens_per_run: int
    tokens: int
    """Training tokens of all runs together."""
    flops: float
    """Training operations of all runs together."""
    workers: int
    threads: int
    seconds: float
    """Estimated time of the whole study with that many workers, without evaluations and start-up."""
    flops_per_second: float
    """Measured speed of one worker that the estimates rest on."""
    variants: tuple[VariantCost, ...]

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        return asdict(self)


def plan(study: Study, *, workers: int) -> Plan:
    """Count and estimate. The study's models must have their vocabulary already (`fit_models`).

    Raises:
        InputError: a variant cannot be built.
    """
    training = study.training
    tokens_per_run = training.steps * training.batch * training.seq
    counted = {name: count(model, training) for name, model in study.variants.items()}
    first = next(iter(study.variants))
    base = counted[first].flops
    speed = measured_speed(study.variants[first], training, base)
    tokens_per_step = training.batch * training.seq
    costs = tuple(
        VariantCost(
            variant=name,
            parameters=found.parameters,
            flops_per_token=found.flops / tokens_per_step,
            peak_bytes=found.peak_bytes,
            seconds=found.flops * training.steps / speed,
            relative=found.flops / base,
            ways=tuple(_ways(study.variants[name], training, speed)),
        )
        for name, found in counted.items()
    )
    per_seed = sum(cost.seconds for cost in costs)
    return Plan(
        study=study.name,
        runs=len(costs) * len(study.seeds),
        seeds=len(study.seeds),
        steps=training.steps,
        tokens_per_run=tokens_per_run,
        tokens=tokens_per_run * len(costs) * len(study.seeds),
        flops=sum(cost.flops_per_token for cost in costs) * tokens_per_run * len(study.seeds),
        workers=workers,
        threads=training.threads,
        seconds=per_seed * len(study.seeds) / workers,
        flops_per_second=speed,
        variants=costs,
    )


def _ways(model: ModelSpec, training: Training, speed: float) -> Iterator[WayCost]:
    with torch.device("meta"):
        scores = model.build_scores()
    if model.depth < 2 or scores.terms(1) == 1:
        return
    shared = scores.shared_weight(0) is not None
    taken = model.attention
    if taken == "auto":
        taken = "carry" if keeps_running_sum(scores, training.seq) else "streaming"
    for way in ("carry", "streaming") if shared else ("streaming",):
        found = count(replace(model, attention=way), training)
        yield WayCost(
            attention=way,
            taken=way == taken,
            flops_per_token=found.flops / (training.batch * training.seq),
            peak_bytes=found.peak_bytes,
            seconds=found.flops * training.steps / speed,
        )


@dataclass(frozen=True, kw_only=True)
class Counted:
    """One training step, counted on the meta device."""

    parameters: int
    flops: int
    peak_bytes: int


def count(model: ModelSpec, training: Training) -> Counted:
    """Parameters, FLOPs and peak memory of one training step, without running it."""
    with torch.device("meta"):
        built = model.build()
        tokens = torch.zeros(training.batch, training.seq, dtype=torch.int64)
    built.train()
    parameters = {id(p): p for p in built.parameters()}.values()
    weights = sum(p.numel() * p.element_size() for p in parameters)
    owned = {p.untyped_storage()._cdata for p in parameters}
    with FlopCounterMode(display=False) as flops, _saved_bytes(owned) as saved, counting_at_once():
        logits = built(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
    logits_bytes = logits.numel() * logits.element_size()
    return Counted(
        parameters=sum(p.numel() for p in parameters),
        flops=flops.get_total_flops(),
        # Gradients of the logits exist beside the saved ones when the backward pass begins.
        peak_bytes=2 * weights + state_bytes(training.optimizer, built) + sum(saved.values()) + logits_bytes,
    )


def state_bytes(optimizer: OptimizerSpec, model: nn.Module) -> int:
    """Bytes of the optimizer's state for a model that has its gradients, after one step of the optimizer itself."""
    built = optimizer.build(optimizer.groups(model))
    built.step()
    tensors = [value for state in built.state.values() for value in state.values() if isinstance(value, Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@contextmanager
def _saved_bytes(owned: set[int]) -> Iterator[dict[int, int]]:
    """Bytes of every storage that autograd keeps for the backward pass, but for the parameters' own."""
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in owned:
            saved[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield saved


def measured_speed(model: ModelSpec, training: Training, flops: int) -> float:
    """FLOPs per second of a real training step on this machine with the study's number of threads: the best of three.

    Args:
        model: what is trained.
        training: how; a step that is too long is cut.
        flops: of a whole step.
    """
    small = training
    while flops > _PROBE_FLOPS and (small.batch > 1 or small.seq > 32):
        share = _PROBE_FLOPS / flops  # of the sequences, which all cost the same, then of the tokens of the last one
        if small.batch > 1:
            small = replace(small, batch=max(1, int(small.batch * share)))
        else:
            small = replace(small, seq=max(32, int(small.seq * share)))
        flops = count(model, small).flops
    if flops > 50 * _PROBE_FLOPS:
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
    """FLOPs per second of a large matrix product, taken at half: what a model too big to try usually reaches."""
    a = torch.randn(1024, 1024)
    start = time.perf_counter()
    for _ in range(4):
        a @ a
    return 4 * 2 * 1024**3 / (time.perf_counter() - start) / 2
