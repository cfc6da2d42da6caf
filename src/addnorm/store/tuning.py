"""Tuning of a study's variants, from its folder: `StudyFolder` to `TuningOutcome`."""

from collections.abc import Sequence
from typing import Any

from addnorm.statistics import Result
from addnorm.statistics.tuning import TuningOutcome, tuning_outcome
from addnorm.store.extension import chosen_points
from addnorm.store.files import Damaged
from addnorm.store.result import result
from addnorm.store.study import StudyFolder


def tuning(folder: StudyFolder, known: Sequence[Result] | None = None) -> TuningOutcome | None:
    """Choice of the points at which a study's variants are compared; None for a study without `tune`.

    A choice that the plan records stands. Before, it follows from the tuning runs.

    Args:
        folder: the study.
        known: results of the tuning runs, if already known; read from the folder otherwise.

    Raises:
        InputError, Damaged: a run's spec is missing or damaged, or the plan's `tune`.
    """
    content = folder.plan.get("tune")
    if content is None:
        return None
    if known is None:
        known = [result(folder, run.status(), run.ending()) for run in folder.tuning_runs()]
    try:
        return tuning_outcome(known, content["points"], content["seeds"], chosen_points(folder.plan))
    except (KeyError, TypeError, AttributeError) as error:
        path = folder.path / "study.json"
        raise Damaged(f"{path} is damaged: tune: expected seeds and points. Restore it from a copy.") from error


def status(folder: StudyFolder) -> dict[str, Any]:
    """The status of every run, and `tuning` for a study with `tune`, as `addnorm status --json` prints them.

    Raises:
        InputError, Damaged: as `tuning`.
    """
    outcome = tuning(folder)
    return folder.status() | ({} if outcome is None else {"tuning": outcome.to_json()})
