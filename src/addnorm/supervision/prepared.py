"""Preparation of a study before its first training step: sizes, steps, checks, data, and the frozen plan.

`addnorm plan` and `addnorm run` fit a study here, before anything is written, so that no worker refuses a spec.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from addnorm.data import Dataset, prepare
from addnorm.data.preparation import prepared
from addnorm.data.token_files import Tell, silent
from addnorm.errors import InputError
from addnorm.fields import FieldError
from addnorm.model.spec import ModelSpec
from addnorm.statistics.seeds_in_stages import SeedsInStages
from addnorm.store import Damaged, StudyFolder, write_json
from addnorm.store.study import COSTS
from addnorm.study.definition import Study
from addnorm.study.encoding import digest, encode
from addnorm.study.executor import ExecutorSpec
from addnorm.study.expansion import expand, fit_models, resolve_shards, run_name, validate
from addnorm.study.plugins import plugins_in
from addnorm.study.points import points, trained_first
from addnorm.study.problems import Problems
from addnorm.supervision.cost_estimate import measured_speed
from addnorm.supervision.step_cost import step_cost
from addnorm.supervision.trial_step import call_plugin
from addnorm.version import __version__


@dataclass(frozen=True, kw_only=True)
class FittedStudy:
    """A study whose models have the sizes of the data, and whose runs have their steps."""

    given: Study
    """The study as it was read; of one with `tune`, its points."""
    study: Study
    """The same with all sizes, shards and steps."""
    vocab: int
    """Ids of the tokenizer that the models were fitted to."""
    budgets: dict[str, dict[str, int | float]]
    """The budget of each variant whose steps follow from one."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Everything that is decided before the first training step."""

    fitted: FittedStudy
    dataset: Dataset
    plan: dict[str, Any]
    """The content of `study.json`; `plan_hash` covers every other entry except the version."""


def fitted_study(study: Study, vocab: int, earlier: Mapping[str, Any] | None = None) -> FittedStudy:
    """Fit a study to its data and check it.

    Args:
        study: the study; of one with `tune`, its points.
        vocab: number of ids of the tokenizer.
        earlier: the frozen plan of the study's folder, if there is one.

    Raises:
        InputError: a variant cannot be built or applied, a schedule does not fit the steps; each with its path.
    """
    # Sizes, then shards, then a first check, then steps: a budget is counted by building the model, which must be known
    # to be possible, and by one step on its shards. The second check is of what depends on the steps, such as residuals
    # that need a number of steps.
    fitted = resolve_shards(fit_models(study, vocab), earlier)
    validate(fitted)
    given = budgets(fitted)
    if given:
        fitted = resolve_budgets(fitted, earlier)
        validate(fitted)
    problems = Problems(f"study '{fitted.name}'")
    for name in fitted.variants:
        _check_schedule(fitted, name, problems)
    if earlier is None:  # what a frozen plan has was checked when it was frozen
        _check_passes(fitted, problems)
    problems.raise_any()
    return FittedStudy(given=study, study=fitted, vocab=vocab, budgets=given)


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


def _check_passes(study: Study, problems: Problems) -> None:
    """Apply the models to one sequence without numbers: positions and implementations of attention refuse what they cannot do.

    Models of others are applied by the check of their contract, those with plugins by the contract of their mechanisms.
    """

    refusals: dict[tuple[ModelSpec, bool], str | None] = {}
    for name, model in study.variants.items():
        if not isinstance(model, ModelSpec) or any(plugins_in(model)):
            continue
        recompute = study.training_of(name).recompute
        if (model, recompute) not in refusals:  # points that differ in training alone have one model
            refusals[model, recompute] = None
            try:
                with torch.device("meta"):
                    built = model.build().train()
                    built.recompute = recompute
                    built(torch.zeros(1, study.training.seq, dtype=torch.int64))
            except InputError as error:
                refusals[model, recompute] = str(error)
        if (text := refusals[model, recompute]) is not None:
            problems.add(f"$.variants.{name}", text)


def prepare_study(study: Study, out: Path, design: SeedsInStages | None = None, tell: Tell = silent) -> Prepared:
    """Prepare the data set in `out` and plan the runs of a study; of one with `tune`, those of tuning.

    Args:
        study: the study; with a design, its seeds are those of the first stage.
        out: folder of the study.
        design: the seeds and looks of a study that adds seeds in stages.
        tell: called with the progress of preparing the data.

    Raises:
        InputError: the corpus cannot be read or is too short, a variant cannot be built, or the axes of `tune` are wrong.
    """
    of_runs = trained_first(study)
    earlier = StudyFolder(out).plan if (out / "study.json").exists() else None
    # The number of ids may only be known after a tokenizer is trained, which takes long and writes. Everything is
    # therefore checked with the expected number first, and fitted again only where the trained one differs.
    existing = prepared(study.corpus, study.tokenizer, out / "data")
    # Before the data: what a worker would refuse is refused while nothing has been written.
    fitted = fitted_study(of_runs, study.tokenizer.size if existing is None else existing.vocab, earlier)
    planned = None if earlier is None else earlier.get("data_hash")
    dataset = prepare(study.corpus, study.tokenizer, out / "data", tell, planned=planned)
    dataset.require(study.training.seq)
    if dataset.vocab != fitted.vocab:  # of a user's tokenizer whose size is known only when it is trained
        fitted = fitted_study(of_runs, dataset.vocab, earlier)
    plan = _frozen_plan(study, fitted, dataset, design, earlier)
    return Prepared(fitted=fitted, dataset=dataset, plan=plan)


def _frozen_plan(
    study: Study,
    fitted: FittedStudy,
    dataset: Dataset,
    design: SeedsInStages | None,
    earlier: Mapping[str, Any] | None,
) -> dict[str, Any]:
    plan: dict[str, Any] = {
        "study": study.name,
        "about": study.about,
        **_comparisons(study, earlier),
        "margin": study.margin,
        "seeds": list(study.seeds),
        "variants": list(study.variants),
        "data_hash": dataset.hash,
        "tokenizer_hash": dataset.tokenizer_hash,
        "runs": [
            {
                "run": run_name(spec),
                "variant": spec.variant,
                "seed": spec.seed,
                "steps": spec.training.steps,
                "spec": encode(spec),
            }
            for spec in expand(fitted.study, dataset.hash)
        ],
    }
    if fitted.budgets:
        plan["budgets"] = fitted.budgets
    if study.titles:
        plan["titles"] = dict(study.titles)
    if study.tune is not None:
        tuned = points(study)
        plan["tune"] = {"seeds": list(tuned.study.seeds), "over": encode(tuned.over), "points": tuned.values}
    if design is not None:
        plan["design"] = design.to_json()
    if study.replicate:
        plan["replicate"] = list(study.replicate)
    # The version stays outside of the hash: a study that one version began is continued by the next, as long as every
    # run's specification is the same. Optional entries are left out, not set to null, so that plans of versions that
    # did not have them keep their hashes.
    return {**plan, "plan_hash": digest(plan), "addnorm_version": __version__}


def _comparisons(study: Study, earlier: Mapping[str, Any] | None) -> dict[str, Any]:
    """References of a plan, and the pairs that are compared where that is not every variant with every reference."""
    if study.compare == "all":
        return {"references": list(study.references), "compare": "all"}
    if study.compare == "equal_axes" and earlier is not None and not {"pairs", "compare"} & earlier.keys():
        # Frozen by a version that compared every variant with every reference. The family of a study is what it was when the
        # study began: it is continued so, and `compare` in the file would be another plan.
        unnamed = not earlier.get("references") and all(", " in name for name in study.references)
        return {"references": [] if unnamed else list(study.references)}
    pairs = {"pairs": [list(pair) for pair in study.pairs]} if study.pairs else {}
    return {"references": list(study.references), **pairs}


def record_costs(study: Study, out: Path) -> None:
    """Count the cost of every variant and write `costs.json`, unless the file is there already.

    The numbers follow from the plan, so they are not part of it. Pages and reports show them without torch:

        {"variants": {NAME: {"parameters", "flops_per_token", "peak_bytes"} or {"reason"}}}

    Args:
        study: a fitted study.
        out: the study's folder.

    Raises:
        DiskFull, JobError: the file cannot be written.
    """
    # Not part of the plan, and never rewritten: the pages of a study must not change because it was continued
    # elsewhere.
    if not (out / COSTS).exists():
        write_json(out / COSTS, {"variants": {name: _cost(study, name) for name in study.variants}})


def _cost(study: Study, variant: str) -> dict[str, Any]:
    training = study.training_of(variant)
    try:
        step = step_cost(study.variants[variant], training)
    except (RuntimeError, TypeError, ValueError) as error:  # a plugin may not support the meta device
        return {"reason": f"{type(error).__name__}: {error}"}
    return {
        "parameters": step.parameters,
        "flops_per_token": step.flops_per_token,
        "peak_bytes": step.peak_bytes,
    }


def require_checkpoint_in_time(study: Study, executor: ExecutorSpec, out: Path) -> None:
    """Refuse a time limit within which a run would not reach its next checkpoint.

    The time of a step is that of the folder's earlier attempts. Without any, it is measured here, as `addnorm plan` does,
    for executors that train on the same kind of device.

    Args:
        study: a fitted study.
        executor: the executor's settings.
        out: the study's folder, which need not exist.

    Raises:
        InputError: the limit is shorter than one checkpoint interval of a variant.
    """
    # An attempt that is stopped before its first checkpoint loses all of its work, and so does the next one: the run
    # would be queued for ever without a failure. Refused before anything is submitted.
    limit_s = executor.longest_attempt_s
    if math.isinf(limit_s):
        return
    recorded = _recorded_speeds(out)
    flops_per_s = 0.0
    for variant, model in study.variants.items():
        training = study.training_of(variant)
        steps = min(training.checkpoint_every, training.steps)
        if variant in recorded:
            step_s, source = training.tokens_per_step / recorded[variant], "in its earlier attempts"
        elif executor.trains_on_gpus:
            continue  # this machine's speed says nothing about theirs
        else:
            flops = step_cost(model, training).flops
            flops_per_s = flops_per_s or measured_speed(model, training, flops)
            step_s, source = flops / flops_per_s, "at the speed measured on this machine"
        if steps * step_s > limit_s:
            raise InputError(
                f"executor.time_limit: expected at least one checkpoint interval, got {limit_s:.0f} s of training: variant "
                f"{variant!r} takes {steps * step_s:.0f} s for {steps} steps {source}. Raise the time limit or lower "
                "training.checkpoint_every."
            )


def _recorded_speeds(out: Path) -> dict[str, float]:
    """Tokens per second by variant, from the newest training event of its fastest run."""
    speeds: dict[str, float] = {}
    for run in StudyFolder(out).all_runs() if (out / "study.json").exists() else ():
        try:
            newest = run.newest("train") or {}
        except Damaged:
            continue  # the supervisor reports it
        speed = float(newest.get("tokens_per_s", 0.0))
        if speed > 0:
            variant = run.spec["variant"]
            speeds[variant] = max(speeds.get(variant, 0.0), speed)
    return speeds


def budgets(study: Study) -> dict[str, dict[str, int | float]]:
    """The budget of each variant whose steps follow from one: variant, name of the budget, value."""
    return {name: budget for name in study.variants if (budget := study.training_of(name).budget)}


def resolve_budgets(study: Study, plan: Mapping[str, Any] | None = None) -> Study:
    """Replace every budget by the largest number of steps within it.

        tokens                 floor(tokens / (batch * seq))
        flops                  floor(flops / FLOPs of one step, as `addnorm plan` counts them)
        tokens_per_parameter   floor(tokens_per_parameter * parameters / (batch * seq))

    The steps are resolved once, when the plan is frozen. A later `addnorm run` of the same budget takes them from the plan, so
    that another count of the FLOPs (by another version of torch) does not make another plan.

    Args:
        study: the study; its models have the sizes of the data (see `fit_models`).
        plan: the frozen plan of the study's folder, if there is one.

    Raises:
        InputError: a budget allows no step.
    """
    if not budgets(study):
        return study
    # From the plan wherever variant and budget are the same. Counted anew, another version of torch could find other
    # FLOPs for an operation, and a study half trained would be refused as another plan.
    frozen = _frozen_steps(plan or {})
    training = {}
    for name in study.variants:
        own = study.training_of(name)
        steps = frozen.get((name, *own.budget.items()))
        steps = _steps(study, name) if steps is None else steps
        training[name] = replace(own, steps=steps, tokens=None, flops=None, tokens_per_parameter=None)
    shared = next(iter(training.values()))
    return replace(
        study, training=shared, variant_training={name: own for name, own in training.items() if own != shared}
    )


def _frozen_steps(plan: Mapping[str, Any]) -> dict[tuple[Any, ...], int]:
    """The steps of a frozen plan by variant and budget."""
    known = plan.get("budgets", {})
    runs = {run["variant"]: run["steps"] for run in plan.get("runs", ())}
    return {(name, *known[name].items()): steps for name, steps in runs.items() if name in known}


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
            f"({what}), got {budget:g}. Raise it, or set steps."
        )
    return steps
