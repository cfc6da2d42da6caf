"""From a study to trained runs: prepare the data, freeze the plan, supervise the workers."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import addnorm
from addnorm.data import Dataset, prepare
from addnorm.errors import InputError
from addnorm.store import RunStatus, State, StudyFolder
from addnorm.study.definition import Study
from addnorm.study.encoding import digest, encode
from addnorm.study.expansion import expand, fit_models, run_name, validate
from addnorm.supervision.costs import keep_costs
from addnorm.supervision.executors.local import WORKER, LocalExecutor
from addnorm.supervision.supervise import supervise


def default_out(study: Study) -> Path:
    """Where a study's runs go unless told otherwise."""
    return Path("runs") / study.name


def run(
    study: Study,
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    on_tick: Callable[[StudyFolder, list[RunStatus]], None] = lambda folder, statuses: None,
    say: Callable[[str], None] = lambda text: None,
    again: Collection[State] = (),
) -> StudyFolder:
    """Train a study's runs, or go on where an earlier call was interrupted. Returns when nothing can go on.

    Args:
        study: what to train.
        out: folder of the runs; runs/NAME if not given.
        workers: runs at the same time; one per GPU or CPU core if not given.
        on_tick: called with the state of every run, about once a second.
        say: called with a line of text when a longer step begins.
        again: runs that ended in one of these states are tried again: "failed", "diverged".

    Returns:
        The study's folder.

    Raises:
        InputError: the study cannot be trained, or the folder holds another plan.
        JobError: another supervisor works on the folder, or the disk refuses.
    """
    if not isinstance(study, Study):
        raise InputError(
            f"run takes a study, got {study!r}. By name or file: addnorm.run(addnorm.load_study({study!r}))."
        )
    out = Path(out) if out is not None else default_out(study)
    threads = study.training.threads
    # Plugins come from the study that the user gave, never from the run's folder, which may be somebody else's.
    command = (*WORKER, *study.plugins)
    executor = LocalExecutor.of_this_machine(threads, slots=workers, command=command)
    say(f"Preparing the corpus '{study.corpus.kind}'.")
    folder = StudyFolder.create(out, frozen_plan(study, out))
    keep_costs(fit_models(study, Dataset.load(out / "data").vocab), out)
    supervise(folder, executor, on_tick=lambda statuses: on_tick(folder, statuses), again=again)
    return folder


def frozen_plan(study: Study, out: Path) -> dict[str, Any]:
    """Everything that is decided before the first step, with its hash. Prepares the data set in `out`.

    Raises:
        InputError: the corpus cannot be read or is too short, or a variant cannot be built.
    """
    dataset = prepare(study.corpus, study.tokenizer, out / "data")
    dataset.require(study.training.seq)
    study = fit_models(study, dataset.vocab)
    validate(study)
    specs = expand(study, dataset.hash)
    plan: dict[str, Any] = {
        "study": study.name,
        "about": study.about,
        "references": list(study.references),
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
            for spec in specs
        ],
    }
    return {**plan, "plan_hash": digest(plan), "addnorm_version": addnorm.__version__}
