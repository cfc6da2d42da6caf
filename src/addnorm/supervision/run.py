"""Training of a study: prepare the data, freeze the plan, supervise the workers."""

from collections.abc import Callable, Collection
from pathlib import Path

from addnorm.data import Dataset
from addnorm.errors import InputError
from addnorm.store import RunStatus, State, StudyFolder
from addnorm.study.definition import Study
from addnorm.study.expansion import fit_models
from addnorm.supervision.cost_record import record_costs
from addnorm.supervision.executors import EXECUTORS, WORKER
from addnorm.supervision.frozen_plan import frozen_plan
from addnorm.supervision.notebook_progress import NotebookProgress, in_notebook
from addnorm.supervision.supervisor import supervise
from addnorm.supervision.trial_step import try_plugins


def default_out(study: Study) -> Path:
    """The folder of a study's runs unless another is given: `runs/NAME`."""
    return Path("runs") / study.name


def run(
    study: Study,
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    executor: str = "local",
    on_tick: Callable[[StudyFolder, list[RunStatus]], None] | None = None,
    say: Callable[[str], None] = lambda text: None,
    again: Collection[State] = (),
) -> StudyFolder:
    """Train the runs of a study, or resume them after an interruption. Returns when every run has ended or is blocked.

    Example::

        import addnorm

        study = addnorm.load_study("residual-scores", settings=["seeds=[0]", "training.steps=20"])
        folder = addnorm.run(study, out="runs/first", workers=2)
        print([(status.run, status.state) for status in folder.statuses()])

    Args:
        study: the study to train.
        out: folder of the runs; `runs/NAME` by default.
        workers: number of runs trained at the same time; by default one per GPU, or one per CPU core.
        executor: name of the executor that starts the workers (a file of `addnorm.supervision.executors`).
        on_tick: called about once a second with the study's folder and the status of every run; by default a notebook
            shows progress, and other programs show nothing.
        say: called with a line of text before each longer step.
        again: states of ended runs that are resumed from their newest checkpoint: "failed", "diverged".

    Returns:
        The study's folder.

    Raises:
        InputError: the study cannot be trained, the code of a plugin fails, or the folder holds another plan.
        UnknownName: no such executor.
        JobError: another supervisor works on the folder, or a file cannot be written.
    """
    if not isinstance(study, Study):
        raise InputError(
            f"run: expected a Study, got {study!r}. Load one by name or file: addnorm.run(addnorm.load_study({study!r}))."
        )
    out = Path(out) if out is not None else default_out(study)
    # Plugins are taken from the user's study, never from the run's folder, which may come from somebody else.
    command = (*WORKER, *study.plugins)
    starter = EXECUTORS.class_of(executor).create(threads=study.training.threads, slots=workers, command=command)
    try_plugins(study)
    say(f"Preparing the corpus '{study.corpus.kind}'.")
    folder = StudyFolder.create(out, frozen_plan(study, out))
    record_costs(fit_models(study, Dataset.load(out / "data").vocab), out)
    show = on_tick if on_tick is not None else NotebookProgress().show if in_notebook() else _show_nothing
    supervise(folder, starter, on_tick=lambda statuses: show(folder, statuses), again=again)
    return folder


def _show_nothing(folder: StudyFolder, statuses: list[RunStatus]) -> None:
    """Progress of a program that is no notebook."""
