"""Checks of a device before the first step: can it train a model, and which ways does attention take there?"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from addnorm.errors import InputError
from addnorm.kernels import has_compiler
from addnorm.kernels.grouped_attention import attend, choose, planned_on, problem_of
from addnorm.model.spec import ModelSpec
from addnorm.study.definition import AnyModel, Training

LEAST_CAPABILITY = (8, 0)
"""Compute capability of the first GPUs that multiply bfloat16, for which the kernels are compiled and checked."""
_BY_KERNELS = ("triton", "running", "carry")
"""Implementations that Triton compiles for a GPU."""


def attention_ways(model: AnyModel, training: Training, device: torch.device) -> Mapping[str, str]:
    """The implementations that attention takes in training on a device, each with a sentence on why.

    Follows from one pass without numbers. Empty for models of others, which attend by themselves.

    Raises:
        InputError: the model cannot attend in the way that it asks for.
    """
    if not isinstance(model, ModelSpec):
        return {}
    rows = training.batch // (training.shards or 1)
    with torch.device("meta"), planned_on(device) as ways:
        built = model.build().train()
        if training.precision == "bfloat16":  # the meta device has no autocast
            built = built.to(torch.bfloat16)
        with torch.no_grad():
            built(torch.zeros(rows, training.seq, dtype=torch.int64))
    return ways


def require_device(model: AnyModel, training: Training, device: torch.device) -> None:
    """Refuse a device that cannot train a model.

    Raises:
        InputError: a GPU below compute capability 8.0, a kernel asked for where there is no GPU, or no compiler for one.
    """
    if device.type != "cuda":
        if isinstance(model, ModelSpec) and model.attention == "triton":
            raise InputError(
                f"attention: triton: expected a GPU, got {device.type}. Set attention to 'auto', or train where there is one."
            )
        return
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_CAPABILITY:
        got = ".".join(map(str, capability))
        raise InputError(
            f"{torch.cuda.get_device_name(device)}: expected a GPU of compute capability 8.0 or later, got {got}. Set "
            "CUDA_VISIBLE_DEVICES= (to nothing) to train on the CPU."
        )
    kernels = sorted(set(attention_ways(model, training, device)) & {*_BY_KERNELS})
    if (kernels or training.compile) and not has_compiler():
        asked = f"attention takes '{kernels[0]}'" if kernels else "training.compile is set"
        raise InputError(
            f"{asked}, which Triton compiles: expected a C compiler, got none. Install gcc or name one in CC, or set "
            f"{'attention: sdpa or streaming' if kernels else 'training.compile: false'}."
        )


def slow_way(model: AnyModel, training: Training, device: torch.device) -> str | None:
    """The reason why a layer attends by a loop over tiles on a GPU, hundreds of launches; None if none does."""
    if device.type != "cuda" or not isinstance(model, ModelSpec) or model.attention != "auto":
        return None
    return attention_ways(model, training, device).get("streaming")


ROUNDING = 2.0**-6
"""Largest error of attention in bfloat16, of the largest value: probabilities and values are rounded to 2^-9 each, and the
attended values once more."""
_CASES: Mapping[str, tuple[int, dict[str, Any]]] = {
    "own scores": (1, {}),
    "with dropout": (1, {"dropout": 0.1}),
    "a window": (1, {"sliding_window": 256}),
    "scores of 8 layers": (8, {}),
}
"""Number of terms and settings."""
_ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class MeasuredWay:
    """One implementation in one case, on a device."""

    case: str
    impl: str
    is_taken: bool
    """True for the one that impl="auto" takes."""
    milliseconds: float
    """Of forward and backward pass."""
    error: float
    """Largest difference from the reference in float32, of the reference's largest value."""


def measure_ways(device: torch.device, *, heads: int = 8, seq: int = 1024) -> list[MeasuredWay]:
    """Compute usual cases of attention in bfloat16 in every way that can, and compare values and times."""
    measured = []
    for case, (terms, settings) in _CASES.items():
        generator = torch.Generator(device).manual_seed(0)
        made = [torch.randn(1, heads, seq, 64, generator=generator, device=device) for _ in range(2 * terms + 1)]
        given = [tensor.to(torch.bfloat16).requires_grad_() for tensor in made]
        queries, keys, value = given[:terms], given[terms:-1], given[-1]
        weights = [64**-0.5 / terms] * terms
        seed = torch.zeros((), dtype=torch.int64, device=device) if "dropout" in settings else None
        wide = [tensor.detach().float() for tensor in given]
        exact = attend(wide[:terms], wide[terms:-1], wide[-1], weights, seed=seed, impl="reference", **settings)
        taken = choose(problem_of(queries, keys, value, weights, causal=True, seed=seed, **settings))
        for impl in ("sdpa", "triton", "streaming"):

            def step(impl: str = impl) -> torch.Tensor:
                out = attend(queries, keys, value, weights, seed=seed, impl=impl, **settings)  # noqa: B023  called at once
                torch.autograd.grad(out.sum(), given)  # noqa: B023
                return out.detach()

            try:
                out = step()
            except InputError:  # this way has no such case
                continue
            error = (out.float() - exact).abs().max() / exact.abs().max().clamp_min(torch.finfo(torch.float32).tiny)
            measured.append(
                MeasuredWay(
                    case=case,
                    impl=impl,
                    is_taken=impl == taken,
                    milliseconds=_time_of(step, device),
                    error=error.item(),
                )
            )
    return measured


def _time_of(step: Callable[[], object], device: torch.device) -> float:
    times = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)
