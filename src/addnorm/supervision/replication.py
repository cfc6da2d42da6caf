"""Training of a second batch of seeds: the variants of found verdicts, when the first batch has ended.

The state is in the folder alone. What was found follows from the first batch, so that a supervisor that is killed at any moment
leaves a folder that the same command continues to the same end; once the plan has the stage, it stands.
"""

from collections.abc import Callable
from dataclasses import replace

from addnorm.errors import InputError
from addnorm.statistics import FEWEST_SEEDS, Ranking
from addnorm.statistics.replication import found_pairs
from addnorm.store import StudyFolder
from addnorm.store.extension import all_runs, seeds_again, stages
from addnorm.store.results import ranking
from addnorm.study.definition import Study
from addnorm.supervision.stages import changed_run
from addnorm.supervision.stop_signals import StopSignals
from addnorm.words import listed, say


def to_be_confirmed(study: Study) -> Study:
    """The study with a second batch of seeds: its own, or as many further seeds as the first batch has.

    Args:
        study: the study.

    Raises:
        InputError: the first batch has too few seeds for any verdict.
    """
    if len(study.seeds) < FEWEST_SEEDS:
        raise InputError(
            f"$.seeds: expected at least {FEWEST_SEEDS} seeds with --until confirmed, since fewer find nothing, got "
            f"{list(study.seeds)}. Set seeds."
        )
    if study.replicate:
        return study
    seen = (*study.seeds, *(study.tune.seeds if study.tune is not None else ()))
    following = max(seen) + 1
    return replace(study, replicate=tuple(range(following, following + len(study.seeds))))


def train_second_batch(
    folder: StudyFolder, train: Callable[[StudyFolder], object], tell: Callable[[str], None] = lambda text: None
) -> StudyFolder:
    """Train the variants of found verdicts on the seeds of the second batch.

    Args:
        folder: a study whose plan has `replicate`, with the runs of the first batch.
        train: trains all runs of a folder, and returns when they have ended or cannot continue.
        tell: called with a line of text before the second batch.

    Returns:
        The folder, with the second batch if the first one has ended and found anything.

    Raises:
        InputError, JobError: as `train`, `rank` and `StudyFolder.add_stage`.
    """
    seeds = seeds_again(folder.plan)
    with StopSignals() as signals:
        first = ranking(folder)
        # Runs of the second batch are there: an earlier command has planned them, and their training has been resumed.
        if signals.count or first.provisional or any(run["seed"] in seeds for run in all_runs(folder.plan)):
            return folder
        variants = _of_found(first)
        if not variants:
            tell(str(say("nothing_to_confirm")))
            return folder
        tell(str(say("second_batch", seeds=listed("comma", seeds), variants=listed("comma", variants))))
        entries = {run.spec["variant"]: run.spec for run in folder.runs()}
        runs = [changed_run(folder, entries[name], seed=seed) for seed in seeds for name in variants]
        folder = folder.add_stage(stages(folder.plan), runs)
        train(folder)
        return folder


def _of_found(ranking: Ranking) -> tuple[str, ...]:
    """Variants of found verdicts, in the order of the ranking; with a copy its original, since neither is one alone."""
    pairs = found_pairs({row.variant: row.versus for row in ranking.variants})
    names = {name for pair in pairs for name in pair}
    return tuple(row.variant for row in ranking.variants if row.variant in names)
