"""Results of a study's folder, and their ranking: `StudyFolder` to `Result` to `Ranking`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from addnorm.errors import InputError, did_you_mean
from addnorm.statistics import Ranking, Result, rank
from addnorm.statistics.measure import LOSS, LOSS_OF_ANSWERS, Metric
from addnorm.statistics.seeds_in_stages import SeedsInStages
from addnorm.store.extension import seeds_again, was_edited
from addnorm.store.files import Damaged, read_json
from addnorm.store.result import result
from addnorm.store.study import Batch, StudyFolder
from addnorm.store.tuning import tuning
from addnorm.words import say


def results(folder: StudyFolder, metric: str = LOSS.name, *, batch: Batch | None = None) -> list[Result]:
    """One result per compared run, in every state. Runs of an extension are marked as not planned.

    Args:
        folder: the study.
        metric: number of the last evaluation that takes the place of the loss.
        batch: first or second batch of seeds alone.

    Raises:
        InputError: a run's spec is missing, or its last evaluation has no such number.
        Damaged: a run's spec is damaged.
    """
    later = added_later(folder)
    made = []
    for run in folder.runs(batch):
        status = run.status()
        evaluation = run.newest("eval") if status.state == "finished" else None
        made.append(result(folder, status, run.ending(), later, evaluation))
        if metric != LOSS.name and evaluation is not None and made[-1].state == "finished":
            made[-1] = _by_metric(made[-1], metric, evaluation)
    return made


def _by_metric(run: Result, metric: str, evaluation: Mapping[str, Any]) -> Result:
    """The result with another number in place of the loss, and without what is of the loss."""
    value = evaluation.get(metric)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        known = [name for name, each in evaluation.items() if isinstance(each, float) and name != "time"]
        raise InputError(
            f"run {run.name}: expected a finite number {metric!r} in its last evaluation, got {value!r}."
            f"{did_you_mean(metric, known)} Known: {', '.join(known)}."
        )
    return replace(run, loss=float(value), accuracy=None, perplexity=None, part_losses=(), part_tokens=())


def measure_of_study(folder: StudyFolder) -> Metric:
    """Tell the unit of a study's losses: nats per token, or per token of the answers of a synthetic task.

    Raises:
        Damaged: the description of the data cannot be read.
    """
    path = folder.path / "data" / "dataset.json"
    content = read_json(path) if path.exists() else None
    return LOSS_OF_ANSWERS if isinstance(content, dict) and content.get("episodes") else LOSS


def added_later(folder: StudyFolder) -> frozenset[str]:
    """Names of the runs that were added to the first plan, other than by its design."""
    return frozenset(
        run["run"] for extension in folder.extensions if "stage" not in extension for run in extension["runs"]
    )


def design(folder: StudyFolder) -> SeedsInStages | None:
    """The design of a plan that adds seeds in stages; None for any other.

    Raises:
        Damaged: the design cannot be read.
    """
    content = folder.plan.get("design")
    if content is None:
        return None
    try:
        return SeedsInStages.from_json(content)
    except InputError as error:
        raise Damaged(f"{folder.path / 'study.json'} is damaged: {error} Restore it from a copy.") from error


def ranking(
    folder: StudyFolder,
    overrides: Mapping[str, Any] | None = None,
    *,
    known: Sequence[Result] | None = None,
    tuned: Sequence[Result] | None = None,
    measure: Metric | None = None,
    confidence: float = 0.95,
) -> Ranking:
    """Ranking of a study in its present state.

    Args:
        folder: the study.
        overrides: `references` or `margin` to use instead of the plan's; `left_out`: variants that take no part.
        known: results of the runs, if already known; read from the folder otherwise.
        tuned: results of the tuning runs, in the same way.
        measure: number of the last evaluation to rank by; the loss if not given.
        confidence: of all verdicts together, and of all intervals together.

    Raises:
        InputError: an unknown reference, results that cannot be compared, or only tuning runs so far.
        Damaged: the plan lacks its references or margin.
    """
    for name in ("references", "margin"):
        if name not in folder.plan:
            raise Damaged(say("plan_lacks", path=str(folder.path / "study.json"), name=name))
    outcome = tuning(folder, tuned)
    if outcome is not None and not folder.runs():
        ended = sum(run.ended for run in outcome.runs)
        raise InputError(say("tuning_first", ended=ended, runs=len(outcome.runs)))
    chosen = {"references": folder.references, "margin": folder.plan["margin"], **(overrides or {})}
    changed = _changed(folder, chosen)
    # Other references than the plan's own are compared with every variant: the plan chose no pairs with them.
    pairs = folder.pairs if set(chosen["references"]) <= set(folder.references) else None
    if seeds_again(folder.plan) and (changed or chosen.get("left_out")):
        raise InputError(say("family_frozen", path=str(folder.path)))
    own = measure is None or measure.name == LOSS.name
    return rank(
        results(folder, LOSS.name if measure is None else measure.name) if known is None else known,
        measure=measure_of_study(folder) if own or measure is None else measure,
        confidence=confidence,
        references=tuple(chosen["references"]),
        margin=chosen["margin"],
        left_out=chosen.get("left_out", ()),
        added_after_look=[
            seed for extension in folder.extensions if extension["looked"] for seed in extension["seeds"]
        ],
        design=design(folder),
        second=seeds_again(folder.plan),
        tuning=outcome if own else None,  # its tables are of losses
        unplanned=[*changed, "plan"] if was_edited(folder.plan) else changed,
        pairs=None if pairs is None else [pair for pair in pairs if pair[1] in chosen["references"]],
    )


def _changed(folder: StudyFolder, chosen: Mapping[str, Any]) -> list[str]:
    """Codes of the differences from the plan's own family; references that were left out are told as such."""
    planned = tuple(name for name in folder.references if name not in chosen.get("left_out", ()))
    differs = {
        "references": tuple(chosen["references"]) != planned,
        "margin": chosen["margin"] != folder.plan["margin"],
    }
    return [name for name, is_other in differs.items() if is_other]
