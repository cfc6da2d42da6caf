"""Training in stages: seeds are added for the variants of open comparisons, by the design that the plan froze.

The state is in the folder alone. Which variants the next stage trains follows from the runs of the complete stages, so that a
supervisor that is killed at any moment leaves a folder that the same command continues to the same end.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from addnorm.statistics.seeds_in_stages import SeedsInStages, Stages
from addnorm.store import StudyFolder
from addnorm.store.extension import stages
from addnorm.store.results import ranking
from addnorm.study.decoding import decode
from addnorm.study.definition import RunSpec
from addnorm.study.encoding import encode
from addnorm.study.expansion import run_name
from addnorm.supervision.stop_signals import StopSignals
from addnorm.words import listed, say


def train_in_stages(
    folder: StudyFolder, train: Callable[[StudyFolder], object], tell: Callable[[str], None] = lambda text: None
) -> StudyFolder:
    """Train the stages of a plan until no comparison is open, the last stage has ended, or a stop is requested.

    Args:
        folder: a study whose plan has a design.
        train: trains all runs of a folder, and returns when they have ended or cannot continue.
        tell: called with a line of text before each stage.

    Returns:
        The folder with all stages that were begun.

    Raises:
        InputError, JobError: as `train`, `rank` and `StudyFolder.add_stage`.
    """
    with StopSignals() as signals:
        while True:
            # Nothing is kept in memory from stage to stage. A supervisor that dies after `add_stage` leaves a longer
            # plan, whose runs the next one trains first; one that dies before it leaves complete stages, from which the
            # same ranking follows.
            train(folder)
            progress = ranking(folder).stages
            # `complete` counts stages whose runs have all ended. With fewer than were planned, runs are blocked or
            # stopped, and to decide from them now would be a look that the design has not accounted for.
            if signals.count or progress is None or progress.complete < stages(folder.plan) or not progress.continuing:
                return folder
            tell(_announcement(progress))
            place = progress.complete
            folder = folder.add_stage(place, stage_runs(folder, progress.design, place, progress.continuing))


def stage_runs(
    folder: StudyFolder, design: SeedsInStages, place: int, variants: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Entries of the runs of a stage: those of the first stage with its seeds.

    Args:
        folder: the study.
        design: its design.
        place: number of the stage, from 1.
        variants: those that the stage trains.
    """
    first = {entry["variant"]: entry for entry in folder.plan["runs"]}
    return [
        changed_run(folder, entry, seed=seed)
        for seed in design.stage(place)
        for name, entry in first.items()
        if name in variants
    ]


def changed_run(folder: StudyFolder, entry: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The entry of a run like that of another one of the plan, with another seed or of another variant."""
    path = f"{folder.path / 'study.json'}: run {entry['run']}: $.spec"
    spec = replace(decode(RunSpec, entry["spec"], path=path), **changes)
    return {**entry, **changes, "run": run_name(spec), "spec": encode(spec)}


def _announcement(progress: Stages) -> str:
    design, place = progress.design, progress.complete
    return str(
        say(
            "next_stage",
            stage=place + 1,
            stages=len(design.looks),
            seeds=design.looks[place],
            most=design.most,
            open=len(progress.undecided) - len(progress.hopeless),
            variants=listed("comma", progress.continuing),
        )
    )
