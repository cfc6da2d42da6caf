"""Training of a tuned study: first every point on the tuning seeds, then every variant at its best point on fresh seeds.

The state is in the folder alone. The choice follows from the tuning runs, so that a supervisor that is killed at any moment
leaves a folder that the same command continues to the same end; once the plan records it, it stands.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from addnorm.statistics.tuning import TuningOutcome
from addnorm.store import StudyFolder
from addnorm.store.extension import stages
from addnorm.store.tuning import tuning
from addnorm.study.decoding import decode
from addnorm.study.definition import RunSpec, Study
from addnorm.supervision.stages import changed_run
from addnorm.supervision.stop_signals import StopSignals
from addnorm.words import listed, say


def train_tuned(
    folder: StudyFolder, train: Callable[[StudyFolder], object], tell: Callable[[str], None] = lambda text: None
) -> StudyFolder:
    """Train the tuning runs, choose a point for every variant, and train the runs that are compared.

    Args:
        folder: a study whose plan has `tune`.
        train: trains all runs of a folder, and returns when they have ended or cannot continue.
        tell: called with a line of text before the compared runs start.

    Returns:
        The folder, with the compared runs if every tuning run has ended.

    Raises:
        InputError, JobError: as `train`, `tuning` and `StudyFolder.add_stage`.
    """
    with StopSignals() as signals:
        train(folder)
        outcome = tuning(folder)
        # The choice is made once, when every tuning run has ended, and is then part of the plan. A second stage means
        # that it has been made: choosing again, perhaps with a rerun that came out differently, would compare points of
        # two choices.
        if signals.count or outcome is None or not outcome.is_complete or stages(folder.plan) > 1:
            return folder
        tell(_announcement(folder, outcome))
        folder = folder.add_stage(1, compared_runs(folder, outcome), _chosen(outcome))
        train(folder)
        return folder


def compared_runs(folder: StudyFolder, outcome: TuningOutcome) -> list[dict[str, Any]]:
    """Entries of the runs that are compared: every variant at its chosen point, with the study's seeds.

    Args:
        folder: the study.
        outcome: its tuning, which is complete.
    """
    first = {entry["variant"]: entry for entry in folder.plan["runs"]}
    return [
        changed_run(folder, first[point], variant=variant, seed=seed)
        for seed in folder.plan["seeds"]
        for variant, point in _chosen(outcome).items()
    ]


def chosen_study(study: Study, folder: StudyFolder) -> Study:
    """The study with the models and training that its variants are compared with.

    Args:
        study: the study that the folder was made from.
        folder: a folder with the compared runs.
    """
    specs = {
        run.spec["variant"]: decode(RunSpec, run.spec["spec"], path=f"{run.path / 'spec.json'}: $.spec")
        for run in folder.runs()
    }
    return replace(
        study,
        variants={name: spec.model for name, spec in specs.items()},
        variant_training={name: spec.training for name, spec in specs.items()},
        tune=None,
    )


def _chosen(outcome: TuningOutcome) -> dict[str, str]:
    return {variant.variant: variant.chosen for variant in outcome.variants if variant.chosen is not None}


def _announcement(folder: StudyFolder, outcome: TuningOutcome) -> str:
    choices = [f"{of.variant}: {of.short(of.chosen)}" for of in outcome.variants if of.chosen is not None]
    seeds = listed("comma", folder.plan["seeds"])
    return str(say("tuning_chosen", choices=listed("semicolon", choices), seeds=seeds))
