"""Budgets of training: the number of steps that a run's tokens, FLOPs or tokens per parameter allow.

    tokens                 floor(tokens / (batch * seq))
    flops                  floor(flops / FLOPs of one step, as `addnorm plan` counts them)
    tokens_per_parameter   floor(tokens_per_parameter * parameters / (batch * seq))

The steps are resolved once, when the plan is frozen. A later `addnorm run` of the same budget takes them from the plan, so
that another count of the FLOPs (by another version of torch) does not make another plan.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from addnorm.errors import InputError
from addnorm.study.definition import Study, Training
from addnorm.supervision.cost_estimate import step_cost


def budgets(study: Study) -> dict[str, dict[str, int | float]]:
    """The budget of each variant whose steps follow from one: variant, name of the budget, value."""
    return {name: budget for name in study.variants if (budget := study.training_of(name).budget)}


def resolve_budgets(study: Study, plan: Mapping[str, Any] | None = None) -> Study:
    """Replace every budget by the largest number of steps within it.

    Args:
        study: the study; its models have the sizes of the data (see `fit_models`).
        plan: the frozen plan of the study's folder, if there is one.

    Raises:
        InputError: a budget allows no step.
    """
    if not budgets(study):
        return study
    frozen = _frozen_steps(plan or {})
    training = {}
    for name in study.variants:
        own = study.training_of(name)
        steps = frozen.get((name, *own.budget.items()))
        training[name] = _with_steps(own, _steps(study, name) if steps is None else steps)
    shared = next(iter(training.values()))
    return replace(
        study, training=shared, variant_training={name: own for name, own in training.items() if own != shared}
    )


def _frozen_steps(plan: Mapping[str, Any]) -> dict[tuple[Any, ...], int]:
    """The steps of a frozen plan by variant and budget."""
    known = plan.get("budgets", {})
    runs = {run["variant"]: run["steps"] for run in plan.get("runs", ())}
    return {(name, *known[name].items()): steps for name, steps in runs.items() if name in known}


def _with_steps(training: Training, steps: int) -> Training:
    return replace(training, steps=steps, tokens=None, flops=None, tokens_per_parameter=None)


def _steps(study: Study, variant: str) -> int:
    training = study.training_of(variant)
    if not training.budget:
        return training.steps
    ((name, budget),) = training.budget.items()
    if name == "tokens":
        step, what = float(training.tokens_per_step), f"{training.tokens_per_step} tokens"
    else:
        cost = step_cost(study.variants[variant], training)
        if name == "flops":
            step, what = float(cost.flops), f"{cost.flops} FLOPs"
        else:
            step = cost.tokens / cost.parameters
            what = f"{step:g} tokens per parameter"
    # A budget of a whole number of steps, such as 20 tokens per parameter, must not lose one to rounding.
    steps = math.floor(budget / step * (1 + 1e-12))
    if steps < 1:
        own = f"variants.{variant}.training" if variant in study.variant_training else "training"
        raise InputError(
            f"study '{study.name}': $.{own}.{name}: expected a budget of at least one step of variant {variant!r} "
            f"({what}), got {budget:g}."
        )
    return steps
