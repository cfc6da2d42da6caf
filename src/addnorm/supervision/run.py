"""Training of a study: prepare the data, freeze the plan, supervise the workers."""

import importlib
import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any, Literal

from addnorm.catalogue import ROOMS
from addnorm.data import Dataset
from addnorm.data.token_files import Progress
from addnorm.errors import InputError, UnknownName
from addnorm.statistics.seeds_in_stages import SeedsInStages
from addnorm.store import RunStatus, State, StudyFolder
from addnorm.store.extension import plugins_of
from addnorm.store.remembered import remember
from addnorm.store.study import COSTS
from addnorm.study.definition import Study
from addnorm.study.executor import ExecutorSpec
from addnorm.study.points import trained_first
from addnorm.supervision.executors import EXECUTORS, WORKER, Work
from addnorm.supervision.prepared import prepare_study, record_costs, require_checkpoint_in_time
from addnorm.supervision.replication import to_be_confirmed, train_second_batch
from addnorm.supervision.stages import train_in_stages
from addnorm.supervision.study_notes import study_notes
from addnorm.supervision.supervisor import supervise
from addnorm.supervision.trial_step import try_plugins
from addnorm.supervision.tuning import chosen_study, train_tuned
from addnorm.training.attention_ways import require_device, slow_way
from addnorm.training.numerics import device_here, require_precision

_OF_A_START = ("data", "supervisor.lock", COSTS)
"""Names of what is made before study.json."""
_OF_A_DISK = ("lost+found",)
MOST_SEEDS = 20
"""Seeds per variant at most, where seeds are added until comparisons are decided."""


def default_out(study: Study) -> Path:
    """The folder of a study's runs unless another is given: `runs/NAME`."""
    return Path("runs") / study.name


def out_folder(study: Study, out: str | Path | None) -> Path:
    """The folder of a study's runs, which holds this study, nothing, or what an interrupted start has left.

    Args:
        study: the study.
        out: the folder that was asked for; `runs/NAME` if None.

    Raises:
        InputError: the name is empty, a file, or a folder with anything else. Nothing has been written.
    """
    if out == "":
        raise InputError("out: expected a folder, got an empty name, as an unset variable of a shell gives it.")
    folder = default_out(study) if out is None else Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: expected a folder, got a file. Choose another folder with --out.")
    if not (folder / "study.json").exists():
        others = _others(folder)
        if others:
            raise InputError(
                f"{folder}: expected an empty folder or one with a study.json, got {', '.join(others[:3])}"
                f"{' and others' if others[3:] else ''}, which training could overwrite. Choose another folder with --out."
            )
    return folder


def _others(folder: Path) -> list[str]:
    """Names in a folder without a study that a start of this study has not made. Hidden files are nobody's results."""
    names = sorted(path.name for path in folder.glob("*") if not path.name.startswith("."))
    # The data set appears under its name when it is complete: a `data` that cannot be opened is somebody else's.
    # A start that was killed leaves data, a lock, and no plan. Those are this study's only if the data can be opened;
    # otherwise somebody else's folder `data` would be taken for it and be overwritten.
    if "data" in names:
        with suppress(InputError):
            Dataset.load(folder / "data")
            names = [name for name in names if name not in _OF_A_START]
    return [name for name in names if name not in _OF_A_DISK]


def run(
    study: Study,
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    executor: str | ExecutorSpec | None = None,
    on_tick: Callable[[StudyFolder, list[RunStatus]], None] | None = None,
    say: Callable[[str], None] = lambda text: None,
    again: Collection[State] = (),
    until: Literal["decided", "confirmed"] | None = None,
    most: int = MOST_SEEDS,
    freeze: bool = False,
) -> StudyFolder:
    """Train the runs of a study, or resume them after an interruption. Returns when every run has ended or is blocked.

    Args:
        study: the study to train.
        out: folder of the runs; `runs/NAME` by default.
        workers: number of runs trained at the same time; by default one per GPU, or one per CPU core, or as many as a
            scheduler has room for.
        executor: where the runs are trained: a name, or settings such as
            `addnorm.supervision.executors.slurm.Slurm(partition="gpu")`; by default what the study says, else this machine.
        on_tick: called about once a second with the study's folder and the status of every run; by default a notebook
            shows progress, and other programs show nothing.
        say: called with a line of text before each longer step.
        again: states of ended runs that are resumed from their newest checkpoint: "failed", "diverged".
        until: "decided" adds seeds in stages where comparisons are open, by a design that the plan freezes. "confirmed" trains
            the variants of every found verdict on a second batch of seeds: the study's `replicate`, or as many as it has seeds.
        most: largest number of seeds per variant with `until="decided"`.
        freeze: True to prepare the data and freeze the plan, and train nothing.

    Returns:
        The study's folder.

    Raises:
        InputError: the study cannot be trained, the code of a plugin fails, the folder holds another plan or files of
            others, `most` is below
            the study's own number of seeds, or the study has `tune` and `until` is given; or the executor cannot be used here,
            or its settings are wrong. Nothing has been started or submitted.
        UnknownName: no such executor.
        JobError: another supervisor works on the folder, or a file cannot be written.

    Example:
        >>> study = addnorm.load_study("damping.yaml")
        >>> folder = run(study, out="runs/damping", workers=2)
        >>> [(status.run, status.state) for status in folder.statuses()]
        [('base-s0-...', 'finished'), ('damped-s0-...', 'finished')]
    """
    if not isinstance(study, Study):
        raise InputError(
            f"run: expected a Study, got {study!r}. Load one by name or file: addnorm.run(addnorm.load_study({study!r}))."
        )
    out = out_folder(study, out)
    if until == "decided":
        require_seeds_alone(study)
    elif until == "confirmed":
        study = to_be_confirmed(study)
    design = SeedsInStages.planned(study.seeds, most) if until == "decided" else None
    if design is not None:
        study = replace(study, seeds=design.stage(0))
    spec = executor_spec(study, executor, workers)
    # Whatever can be refused is refused before the data are prepared, in the order of cost: names and settings, the
    # executor, the device, plugins. Preparing a corpus may take an hour, and the mistake would be shown after it.
    starter = EXECUTORS.class_of(spec.kind).of(spec, _work(study, out))
    first = trained_first(study)
    require_precision_here(first, spec)
    try_plugins(first)
    say(f"Preparing the corpus '{study.corpus.kind}'.")
    prepared = prepare_study(study, out, design, lambda progress: say(_data_line(progress)))
    notes = _device_notes(prepared.fitted.study, spec)
    for sentence in (*study_notes(prepared.fitted), *prepared.dataset.both_sides.sentences(), *notes):
        say(sentence)
    require_checkpoint_in_time(prepared.fitted.study, spec, out)
    folder = StudyFolder.create(out, prepared.plan)
    remember(out, plugins_of(prepared.plan))
    # Of a tuned study, the costs shown are those of the points that are chosen, which are not known before.
    if study.tune is None:
        record_costs(prepared.fitted.study, out)
    if freeze:
        return folder
    show = on_tick if on_tick is not None else NotebookProgress().show if in_notebook() else _show_nothing

    def train(folder: StudyFolder) -> None:
        supervise(folder, starter, on_tick=lambda statuses: show(folder, statuses), again=again)

    if design is not None:
        return train_in_stages(folder, train, say)
    if study.tune is not None:
        folder = train_tuned(folder, train, say)
        if folder.runs():
            record_costs(chosen_study(study, folder), out)
    else:
        train(folder)
    if study.replicate and folder.runs():
        folder = train_second_batch(folder, train, say)
    return folder


def _device_notes(study: Study, executor: ExecutorSpec) -> list[str]:
    """Sentences on variants whose attention no kernel of this machine's GPU computes.

    Raises:
        InputError: this machine's device cannot train a variant.
    """
    slow: dict[str, list[str]] = {}
    if executor.kind == "local":
        device = device_here()
        for variant, model in study.variants.items():
            training = study.training_of(variant)
            require_device(model, training, device)
            if (why := slow_way(model, training, device)) is not None:
                slow.setdefault(why, []).append(variant)
    return [
        f"Attention of {', '.join(variants)} is a loop over tiles on this GPU, which is slow: {why}"
        for why, variants in slow.items()
    ]


def require_precision_here(study: Study, executor: ExecutorSpec) -> None:
    """Raise an `InputError` for a precision that this machine's device lacks, if the study is trained here."""
    if executor.kind == "local":  # the machines of others may have other devices
        for variant in study.variants:
            require_precision(study.training_of(variant), device_here())


def require_seeds_alone(study: Study, located: Callable[[str], str] = str) -> None:
    """Refuse what has runs of its own, `tune` and `replicate`, in a study whose seeds are added in stages.

    Args:
        study: the study.
        located: makes of a path of the study the place in its file, for the message.

    Raises:
        InputError: the study has one of them.
    """
    if study.tune is not None:
        raise InputError(
            f"{located('$.tune')}: expected no tune where seeds are added until comparisons are decided, got both. Leave out "
            "--until (in Python: until) and set seeds, or remove tune."
        )
    if study.replicate:
        raise InputError(
            f"{located('$.replicate')}: expected no replicate where seeds are added until comparisons are decided, got both. "
            "Give --until confirmed (in Python: until), or remove replicate."
        )


def script(
    study: Study,
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    executor: str | ExecutorSpec | None = None,
) -> str:
    """The script that `run` with the same arguments would submit to a scheduler. Writes and submits nothing.

    Raises:
        InputError: the executor submits no script, or its settings are wrong.
    """
    out = Path(out) if out is not None else default_out(study)
    spec = executor_spec(study, executor, workers)
    first = trained_first(study)
    runs = len(first.variants) * len(first.seeds)
    text: str = EXECUTORS.class_of(spec.kind).script(spec, _work(study, out), runs)
    return text


def executor_spec(study: Study, executor: str | ExecutorSpec | None, workers: int | None) -> ExecutorSpec:
    """Settings of the executor: those given, else the study's. A name alone takes the study's settings of that kind.

    Raises:
        UnknownName: no such executor.
        InputError: a number of workers below 1.
    """
    own = study.executor
    if executor is None:
        executor = own if own is not None else "local"
    if isinstance(executor, str):
        executor = own if own is not None and own.kind == executor else _of_kind(executor)
    if workers is None:
        return executor
    if workers < 1:
        raise InputError(
            f"workers: expected a whole number of at least 1, got {workers}. Omit it for one worker per device."
        )
    return replace(executor, at_once=workers)


def _of_kind(kind: str) -> Any:
    if kind not in ROOMS["executor"].kinds():
        raise UnknownName("executor", kind, ROOMS["executor"].kinds())
    return ROOMS["executor"].make(kind)


def _work(study: Study, out: Path) -> Work:
    # Plugins are taken from the user's study, never from the run's folder, which may come from somebody else.
    training = study.training
    options = ("--devices", str(training.devices)) if training.devices > 1 else ()
    sharded = ("--sharded",) if training.parallel == "sharded" else ()
    command = (*WORKER, *options, *sharded, *study.plugins)
    return Work(folder=out, threads=training.threads, devices=training.devices, command=command)


def _data_line(progress: Progress) -> str:
    """A line about the preparation of the data."""
    share = f" of about {progress.total / 1e9:.2f}" if progress.total else ""
    return f"Read {progress.read / 1e9:.2f}{share} GB of text, wrote {progress.tokens / 1e6:.0f} million tokens."


def _show_nothing(folder: StudyFolder, statuses: list[RunStatus]) -> None:
    """Progress of a program that is no notebook."""


def in_notebook() -> bool:
    """True in the kernel of a notebook; imports nothing."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return getattr(shell, "kernel", None) is not None


class NotebookProgress:
    """An output of a notebook's cell with a bar, the number of runs in each state, and the running runs."""

    def __init__(self) -> None:
        self._display: Any = importlib.import_module("IPython.display")
        self._output: Any = None

    def show(self, folder: StudyFolder, statuses: Sequence[RunStatus]) -> None:
        """Show the current state, in place of the one before."""
        html = self._display.HTML(progress_html(folder.name, statuses))
        if self._output is None:
            self._output = self._display.display(html, display_id=True)
        else:
            self._output.update(html)


def progress_html(name: str, statuses: Sequence[RunStatus]) -> str:
    """A study's progress as HTML, with the state, step and loss of each running run."""
    done, steps = sum(status.step for status in statuses), sum(status.steps for status in statuses)
    counts = ", ".join(f"{count} {state}" for state, count in Counter(s.state for s in statuses).most_common())
    running = "".join(
        f"<li>{escape(status.variant)}, seed {status.seed}: step {status.step} of {status.steps}"
        + ("" if status.loss is None else f", loss {status.loss:.4f}")
        + "</li>"
        for status in statuses
        if status.state == "running"
    )
    return (
        f"<p>{escape(name)}: {counts}<br><progress value='{done}' max='{max(1, steps)}'></progress> "
        f"{done / max(1, steps):.0%} of all steps</p>" + (f"<ul>{running}</ul>" if running else "")
    )
