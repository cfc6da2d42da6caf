"""A study with every number that its runs have, after the checks that a worker makes from a run's spec.

`addnorm plan` and `addnorm run` fit a study here, before anything is written, so that no worker refuses a spec.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from addnorm.errors import InputError
from addnorm.fields import FieldError
from addnorm.model.spec import ModelSpec
from addnorm.study.definition import Study, Training
from addnorm.study.expansion import fit_models, plugins_in, validate
from addnorm.study.problems import Problems
from addnorm.study.shards import resolve_shards
from addnorm.supervision.budget import budgets, resolve_budgets
from addnorm.supervision.trial_step import call_plugin


@dataclass(frozen=True, kw_only=True)
class FittedStudy:
    """A study whose models have the sizes of the data, and whose runs have their steps."""

    study: Study
    vocab: int
    """Ids of the tokenizer that the models were fitted to."""
    budgets: dict[str, dict[str, int | float]]
    """The budget of each variant whose steps follow from one."""


def fitted_study(study: Study, vocab: int, earlier: Mapping[str, Any] | None = None) -> FittedStudy:
    """Fit a study to its data and check it.

    Args:
        study: the study; of one with `tune`, its points.
        vocab: number of ids of the tokenizer.
        earlier: the frozen plan of the study's folder, if there is one.

    Raises:
        InputError: a variant cannot be built or applied, a schedule does not fit the steps; each with its path.
    """
    fitted = resolve_shards(fit_models(study, vocab), earlier)
    validate(fitted)
    given = budgets(fitted)
    if given:
        fitted = resolve_budgets(fitted, earlier)
        validate(fitted)
    problems = Problems()
    for name in fitted.variants:
        _check_schedule(fitted, name, problems)
        _check_pass(fitted, name, problems)
    problems.raise_any(f"study '{fitted.name}'")
    return FittedStudy(study=fitted, vocab=vocab, budgets=given)


def _check_schedule(study: Study, name: str, problems: Problems) -> None:
    training = study.training_of(name)
    if not training.steps:
        return  # evaluated as it starts
    place = f"$.variants.{name}.training" if name in study.variant_training else "$.training"
    try:
        call_plugin(training.schedule, partial(training.schedule.factor, 0, training.steps))
    except FieldError as error:
        problems.add(f"{place}.schedule.{error.field}", error.problem)
    except InputError as error:
        problems.add(f"{place}.schedule", str(error))


def _check_pass(study: Study, name: str, problems: Problems) -> None:
    """Apply a model to one sequence without numbers: positions and implementations of attention refuse what they cannot do.

    Models of others are applied by the check of their contract, those with plugins by the contract of their mechanisms.
    """
    model, training = study.variants[name], study.training_of(name)
    if not isinstance(model, ModelSpec) or any(plugins_in(model)):
        return
    try:
        _apply(model, training)
    except InputError as error:
        problems.add(f"$.variants.{name}", str(error))


def _apply(model: ModelSpec, training: Training) -> None:
    with torch.device("meta"):
        built = model.build().train()
        built.recompute = training.recompute
        built(torch.zeros(1, training.seq, dtype=torch.int64))
