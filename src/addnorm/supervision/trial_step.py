"""Trial of a user's own optimizer and schedule on a small model, before a study's folder is made.

A mistake in such a file would otherwise appear in every worker, after the plan is frozen.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from addnorm.catalogue import ROOMS, Spec
from addnorm.errors import InputError
from addnorm.model.presets import preset
from addnorm.optimization.optimizers import OptimizerSpec
from addnorm.optimization.schedules import ScheduleSpec
from addnorm.study.definition import Study
from addnorm.study.plugins import plugin_of
from addnorm.user_code import call

_STEPS = 2  # the second one meets the state that the first one made


def try_plugins(study: Study) -> None:
    """Train a small model for two steps with every optimizer and schedule of a study that is a plugin.

    Raises:
        InputError: one of them raises or returns something unusable; the message has the file and the line.
    """
    trainings = [study.training, *(study.training_of(name) for name in study.variants)]
    for training in (each for place, each in enumerate(trainings) if each not in trainings[:place]):
        call_plugin(training.schedule, partial(_try_schedule, training.schedule, training.steps))
        call_plugin(training.optimizer, partial(_try_optimizer, training.optimizer))


def call_plugin(spec: Spec, function: Callable[[], Any]) -> Any:
    """Call a function that runs a spec's code. A mistake of a plugin becomes an `InputError`; another one is a bug here.

    Raises:
        InputError: the function raises, and the spec is a plugin.
    """
    # Only a plugin's exception is the user's mistake. Turned into an `InputError` for built-in code as well, a bug of
    # ours would be printed as wrong input, without its traceback.
    path = plugin_of(spec)
    if path is None:
        return function()
    room = next(room for room in ROOMS.values() if room.plugins.get(spec.kind) is not None)
    return call(function, f"{room.name} '{spec.kind}', plugin {path}", room.module_of(spec.kind))


def _try_schedule(schedule: ScheduleSpec, steps: int) -> None:
    if plugin_of(schedule) is None:
        return
    for step in sorted({0, steps // 2, steps - 1} if steps else ()):
        factor = schedule.factor(step, steps)
        if not isinstance(factor, int | float) or not math.isfinite(factor) or factor < 0:
            raise InputError(
                f"expected a finite factor of the learning rate of at least 0 at step {step} of {steps}, got {factor!r}."
            )


def _try_optimizer(spec: OptimizerSpec) -> None:
    if plugin_of(spec) is None:
        return
    model = preset("base", vocab=8, width=8, depth=1, heads=2, kv_heads=2, hidden=8, max_seq=4).build(seed=0)
    optimizer = spec.build(spec.groups(model))
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InputError(f"expected build() to return a torch.optim.Optimizer, got {optimizer!r}.")
    for _ in range(_STEPS):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 0.01)
        for group in optimizer.param_groups:
            group["lr"] = spec.learning_rate
            for parameter in group["params"]:
                spec.decay_rate(parameter, group)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    # An optimizer whose state cannot be loaded trains well until the first resumption, perhaps a day later.
    spec.build(spec.groups(model)).load_state_dict(optimizer.state_dict())  # as a resumed run does
