"""Train a study, or resume it after an interruption.

The runs are trained in worker processes. Their state is written to the folder, so the same command resumes after any
interruption. Ctrl-C lets every run finish its current step and write a checkpoint; a second Ctrl-C ends them at once. The
exit code is 0 if every run has finished, else 1.

For example:
    addnorm run residual-scores --out runs/first
    addnorm run mine.yaml --set seeds=[0,1] --workers 2
"""

import shlex
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from addnorm.cli._text import print_json, print_line
from addnorm.errors import JobError
from addnorm.store import RunStatus, State, StudyFolder
from addnorm.store.run import NOT_FINITE

if TYPE_CHECKING:
    from addnorm.cli._live_table import Silent


@dataclass(frozen=True)
class Options:
    study: Annotated[str, tyro.conf.Positional]
    """Name of a built-in study, or a study file (.yaml, .py)."""
    out: Path | None = None
    """Folder of the study's runs; runs/NAME if not given."""
    profile: str | None = None
    """Profile of the study, such as `quick` or `paper`; its default if not given."""
    set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Change a field: `--set training.steps=500`. May be given more than once."""
    workers: int | None = None
    """Runs at the same time; one per GPU or per CPU core if not given."""
    retry: bool = False
    """Resume failed and diverged runs from their newest checkpoint, after a cause outside the run is gone (memory, versions). A
    loss that became NaN becomes NaN again."""
    tracker: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(aliases=["--mirror"])] = ()
    """Also send the numbers to a tracker: tensorboard, trackio, mlflow, wandb, swanlab. May be given more than once."""
    executor: str = "local"
    """Executor that starts the workers: local."""
    watch: bool = False
    """Also serve the live page while the study is trained, and print its address. `addnorm watch` serves it at any time."""
    json: bool = False
    """Print the final status as JSON, and no table."""


def command(options: Options) -> int:
    from addnorm.cli._live_table import LiveTable, Silent
    from addnorm.study.loading import load_study
    from addnorm.supervision.run import default_out, run
    from addnorm.supervision.tracking import Tracking

    study = load_study(options.study, profile=options.profile, settings=options.set)
    out = options.out or default_out(study)
    table = Silent() if options.json else LiveTable(study.name, out)
    tracking = Tracking(options.tracker, say=print_line)
    with table, tracking, ExitStack() as beside_the_runs:
        again: tuple[State, ...] = ("failed", "diverged") if options.retry else ()
        show = _with_page(table, beside_the_runs) if options.watch else table.show

        def on_tick(folder: StudyFolder, statuses: list[RunStatus]) -> None:
            tracking.update(folder.path)
            show(folder, statuses)

        folder = run(
            study,
            out=out,
            workers=options.workers,
            executor=options.executor,
            on_tick=on_tick,
            say=table.say,
            again=again,
        )
    status = folder.status()
    states = [entry["state"] for entry in status["runs"]]
    not_finite = sum((run.ending() or {}).get("cause") == NOT_FINITE for run in folder.runs())
    if options.json:
        print_json(status)
    else:
        _print_summary(out, states, not_finite, options)
    return 0 if all(state == "finished" for state in states) else 1


def _with_page(table: "Silent", beside_the_runs: ExitStack) -> Callable[[StudyFolder, list[RunStatus]], None]:
    """Show the table, and serve the page from the first call on, when the folder exists."""
    from addnorm.web.serve import beside, page

    started = False

    def show(folder: StudyFolder, statuses: list[RunStatus]) -> None:
        nonlocal started
        if not started:
            started = True
            try:
                ready = page(folder.path)
            except JobError as error:  # training goes on without the page
                print_line(f"addnorm: there is no page: {error}")
            else:
                beside_the_runs.enter_context(beside(ready))
                print_line(f"The page, while this runs: {ready.url}")
        table.show(folder, statuses)

    return show


def _print_summary(out: Path, states: Sequence[str], not_finite: int, options: Options) -> None:
    done = states.count("finished")
    print(f"\n{done} of {len(states)} runs finished in {out}.")
    open_runs = len(states) - done - states.count("failed") - states.count("diverged")
    if open_runs:
        print(f"{open_runs} still to do. To resume, give the same command again:\n  {_same_command(out, options)}")
    if "blocked" in states:
        print(f"Some are blocked; the reasons:  addnorm status {out}")
    if not_finite:
        print(
            f"{not_finite} failed because a loss or gradient was not finite, and would fail in the same way again; the "
            f"reasons:  addnorm status {out}\nLower training.optimizer.learning_rate or change the model, and train into "
            "another folder with --out."
        )
    if states.count("failed") + states.count("diverged") > not_finite:
        print(f"Some failed; the reasons:  addnorm status {out}    To try them again, add --retry to the command.")
    if done:
        print(
            f"The ranking:  addnorm rank {out}\nThe page:     addnorm watch {out}\nThe report:   addnorm report {out}"
        )


def _same_command(out: Path, options: Options) -> str:
    words = ["addnorm", "run", options.study]
    if options.profile is not None:
        words += ["--profile", options.profile]
    for setting in options.set:
        words += ["--set", setting]
    words += ["--out", str(out)]
    if options.workers is not None:
        words += ["--workers", str(options.workers)]
    for name in options.tracker:
        words += ["--tracker", name]
    if options.executor != "local":
        words += ["--executor", options.executor]
    return shlex.join(words)
