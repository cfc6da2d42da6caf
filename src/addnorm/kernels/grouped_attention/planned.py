"""The ways that attention takes on a device, asked before anything is computed there.

A pass on the meta device has the shapes of every layer's problem, and what impl="auto" takes follows from shapes, settings and
the device. Inside `planned_on` such a pass chooses as that device would and notes each way with its reason; the work itself is
then that of a pass without numbers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch

from addnorm.kernels.grouped_attention.problem import AttentionProblem


@dataclass(frozen=True)
class _Plan:
    device: torch.device
    ways: dict[str, str] = field(default_factory=dict)


_PLAN: ContextVar[_Plan | None] = ContextVar("plan", default=None)


@contextmanager
def planned_on(device: torch.device) -> Iterator[dict[str, str]]:
    """Choose as on a device in passes on the meta device. Yields the implementations taken, each with a sentence on why."""
    plan = _Plan(device)
    token = _PLAN.set(plan)
    try:
        yield plan.ways
    finally:
        _PLAN.reset(token)


def is_planning(problem: AttentionProblem) -> bool:
    """True in a pass without numbers that asks for the ways on a device."""
    return problem.value.is_meta and _PLAN.get() is not None


def runs_on(problem: AttentionProblem) -> torch.device:
    """The device that the problem is computed on, or would be."""
    plan = _PLAN.get() if problem.value.is_meta else None
    return problem.value.device if plan is None else plan.device


def note(impl: str, why: str) -> None:
    """Keep an implementation with the reason for it, each reason once."""
    plan = _PLAN.get()
    if plan is not None:
        earlier = plan.ways.get(impl)
        if earlier is None:
            plan.ways[impl] = why
        elif why not in earlier.split("; "):
            plan.ways[impl] = f"{earlier}; {why}"
