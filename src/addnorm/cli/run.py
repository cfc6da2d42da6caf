"""Train a study, or resume it after an interruption.

The runs are trained in worker processes. Their state is written to the folder, so the same command resumes after any
interruption. Ctrl-C lets every run finish its current step and write a checkpoint; a second Ctrl-C ends them at once. The
exit code is 0 if every run has finished, else 1.

Where the runs are trained is the executor's matter, whose settings are `executor:` in a study file or `--executor.FIELD`:
processes of this machine, jobs of Slurm, or actors of Ray (see `addnorm list guide/clusters`).

For example:
    addnorm run residual-scores --out runs/first
    addnorm run mine.yaml --set seeds=[0,1] --workers 2
    addnorm run mine.yaml --until decided --most 20
    addnorm run mine.yaml --on-end 'notify-send "$ADDNORM_STUDY: $ADDNORM_FINISHED of $ADDNORM_RUNS"'
    addnorm run mine.yaml --executor slurm --executor.partition gpu --executor.gpus 1 --dry-run
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import tyro

from addnorm.cli._text import StudyOptions, print_json, print_line, refuse
from addnorm.errors import InputError, JobError
from addnorm.store import RunStatus, State, StudyFolder
from addnorm.store.ending import NOT_FINITE, WRONG_INPUT
from addnorm.words import command_line, spoken, translated

if TYPE_CHECKING:
    from addnorm.study.executor import ExecutorSpec

_PREFIX = "--executor."


def expanded(arguments: Sequence[str]) -> list[str]:
    """Write `--executor.at-once 4` as `--executor-set at_once=4`, which the parser of options knows.

    Raises:
        InputError: a field without a value.

    Example:
        >>> expanded(["mine.yaml", "--executor.at-once", "4", "--executor.gpus=1"])
        ['mine.yaml', '--executor-set', 'at_once=4', '--executor-set', 'gpus=1']
    """
    result: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith(_PREFIX):
            result.append(argument)
            continue
        name, equals, value = argument.removeprefix(_PREFIX).partition("=")
        given = value if equals else next(rest, None)
        if not name or given is None:
            raise InputError(f"{argument}: expected a field and its value. For example: {_PREFIX}at-once 4")
        result += ["--executor-set", f"{name.replace('-', '_')}={given}"]
    return result


def with_fields(spec: "ExecutorSpec", settings: Sequence[str]) -> Any:
    """An executor's settings with fields of the command line over them.

    Args:
        spec: the settings below.
        settings: `FIELD=VALUE` each; values are YAML, those of texts are taken as they are.

    Raises:
        InputError: no such field, or a wrong value; the message has the path of every problem.
    """
    from addnorm.strict_yaml import read_yaml
    from addnorm.study.decoding import decode
    from addnorm.study.encoding import encode

    if not settings:
        return spec
    hints = get_type_hints(type(spec))
    content = encode(spec)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--executor-set: expected FIELD=VALUE, got {setting!r}. For example: at_once=4")
        # 12:30:00 and 0123 are texts here and numbers in YAML.
        is_text = hints.get(name) in (str, str | None)
        content[name] = text if is_text else read_yaml(text, f"{_PREFIX}{name}")
    return decode(type(spec), content, path="--executor")


if TYPE_CHECKING:
    from addnorm.cli._progress import Silent


@dataclass(frozen=True)
class Options(StudyOptions):
    out: Path | None = None
    """Folder of the study's runs; runs/NAME if not given."""
    until: Literal["decided", "confirmed"] | None = None
    """`decided` adds seeds in stages, to the variants of comparisons that are still open. Seeds and looks are planned before
    the first step, and all verdicts of all looks together hold with 95 %. `confirmed` trains the variants of found verdicts on
    a second batch of seeds, planned before the first is seen: the study's `replicate`, or as many as it has seeds."""
    most: int | None = None
    """Largest number of seeds per variant with `--until decided`; 20 if not given."""
    workers: int | None = None
    """Runs at the same time; if not given, one per GPU or CPU core, or as many as a scheduler has room for."""
    retry: bool = False
    """Resume failed and diverged runs from their newest checkpoint, after a cause outside the run is gone (memory, versions). A
    loss that became NaN becomes NaN again."""
    tracker: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(aliases=["--mirror"])] = ()
    """Also send the numbers to a tracker: tensorboard, trackio, mlflow, wandb, swanlab. May be given more than once."""
    executor: str | None = None
    """Executor that starts the workers: `local` (the default), `ray` or `slurm`; `addnorm doctor` tells which work here."""
    executor_set: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Change a field of the executor: `--executor.partition gpu`, or `--executor-set partition=gpu`. `addnorm list executor`
    has the executors, `addnorm list study-file` their fields. May be given more than once."""
    freeze: bool = False
    """Prepare the data, freeze the plan and train nothing: `addnorm trend --predict` predicts such a study."""
    dry_run: bool = False
    """Print the script that would be submitted, or what each actor of Ray would be, and do nothing."""
    on_failure: str | None = None
    """Shell command to start for each run that fails or diverges; the facts are in its environment (`ADDNORM_RUN`,
    `ADDNORM_REASON` and others, see `addnorm list guide/watch`)."""
    on_end: str | None = None
    """Shell command to start when this command has trained what it can (`ADDNORM_FINISHED`, `ADDNORM_RUNS` and others)."""
    watch: bool = False
    """Also serve the live page while the study is trained, and print its address. `addnorm watch` serves it at any time."""


def command(options: Options) -> int:
    from addnorm.cli._progress import LiveTable, Silent
    from addnorm.store.tuning import status
    from addnorm.study.loading import load_study, located
    from addnorm.supervision.alerts import Alerts
    from addnorm.supervision.run import (
        MOST_SEEDS,
        default_out,
        executor_spec,
        require_seeds_alone,
        run,
        script,
    )
    from addnorm.supervision.tracking import Tracking

    if options.most is not None and options.until != "decided":
        raise InputError("--most: expected with --until decided, got it alone. Add --until decided, or set seeds.")
    if options.freeze:
        refuse(options, "--freeze", "watch", "tracker", "on_end", "on_failure", "retry")
    study = load_study(options.study, profile=options.profile, settings=options.set)
    if options.until == "decided":
        located_at = partial(located, options.study, profile=options.profile, settings=options.set)
        require_seeds_alone(study, located_at)
    out = default_out(study) if options.out is None else options.out
    executor = with_fields(executor_spec(study, options.executor, None), options.executor_set)
    if options.dry_run:
        print(script(study, out=out, workers=options.workers, executor=executor), end="")
        return 0
    # Contexts end in reverse: the page first, then trackers, which send their last numbers, then the table, whose last
    # drawing stays on the screen above the summary.
    table = Silent() if options.json else LiveTable(study.name, out)
    tracking = Tracking(options.tracker, say=print_line)
    alerts = Alerts(options.on_end, options.on_failure, say=print_line)
    latest: list[RunStatus] = []
    with table, tracking, ExitStack() as beside_the_runs:
        again: tuple[State, ...] = ("failed", "diverged") if options.retry else ()
        show = _with_page(table, beside_the_runs) if options.watch else table.show

        def on_tick(folder: StudyFolder, statuses: list[RunStatus]) -> None:
            tracking.update(folder.path)
            alerts.update(folder, statuses)
            show(folder, statuses)
            latest[:] = statuses

        folder = run(
            study,
            out=out,
            workers=options.workers,
            executor=executor,
            on_tick=on_tick,
            say=table.say,
            again=again,
            until=options.until,
            most=MOST_SEEDS if options.most is None else options.most,
            freeze=options.freeze,
        )
    if options.freeze:
        print_json(status(folder)) if options.json else print_line(
            spoken()("run.frozen", out=out, runs=len(folder.all_runs()))
        )
        return 0
    # The supervisor's last word: it knows reasons that a full disk could not store.
    last = {status.run: status for status in latest}
    statuses = [last.get(run.name) or run.status() for run in folder.all_runs()]
    alerts.end(folder, statuses)
    # Of a tuned study, the compared runs count once they are planned: a value at which training fails is not chosen.
    compared = {run.name for run in folder.runs() or folder.all_runs()}
    counted = [entry for entry in statuses if entry.run in compared]
    if options.json:
        print_json(status(folder) | {"runs": [entry.to_json() for entry in statuses]})
    else:
        _print_summary(out, counted, _endings(folder), options)
    return 0 if folder.runs() and all(entry.state == "finished" for entry in counted) else 1


def _endings(folder: StudyFolder) -> dict[str, dict[str, Any]]:
    """Content of the runs' DONE, FAILED or BLOCKED by their names, of those that can be read."""
    endings = {}
    for run in folder.all_runs():
        with suppress(JobError):
            endings[run.name] = run.ending() or {}
    return endings


def _with_page(table: "Silent", beside_the_runs: ExitStack) -> Callable[[StudyFolder, list[RunStatus]], None]:
    """Show the table, and serve the page from the first call on, when the folder exists."""
    from addnorm.web.serve import page, serving

    started = False

    def show(folder: StudyFolder, statuses: list[RunStatus]) -> None:
        nonlocal started
        if not started:
            started = True
            try:
                ready = page(folder.path)
            except JobError as error:  # training goes on without the page
                print_line(spoken()("run.no_page", reason=translated(str(error))))
            else:
                beside_the_runs.enter_context(serving(ready))
                print_line(spoken()("run.page_at", address=ready.url))
        table.show(folder, statuses)

    return show


def _print_summary(
    out: Path, statuses: Sequence[RunStatus], endings: Mapping[str, Mapping[str, Any]], options: Options
) -> None:
    """Print what is finished, why the rest is not, and what to do. A command is the last thing on its line."""
    t = spoken()
    states = [status.state for status in statuses]
    done = states.count("finished")
    reasons = command_line("addnorm", "status", out)
    print("\n" + t("run.finished", done=done, all=len(states), out=out))
    for status in statuses:
        if status.reason is not None and status.state not in ("failed", "diverged"):
            state = t(f"state.{status.state}")
            print("  " + t("run.is_state", run=status.run, state=state, reason=translated(status.reason)))
    waiting = [status for status in statuses if not status.is_over]
    if waiting:
        print(f"{t('run.to_do', count=len(waiting))}\n  {_same_command(out, options)}")
    if "blocked" in states:
        print(t("run.blocked", command=reasons))
    lost = [status.run for status in statuses if status.state in ("failed", "diverged")]
    causes = [endings.get(name, {}).get("cause") for name in lost]
    if lost:
        print(t("run.failed", count=len(lost), command=reasons))
    if NOT_FINITE in causes:
        print(t("run.not_finite", count=causes.count(NOT_FINITE)))
    if WRONG_INPUT in causes:
        print(t("run.wrong_input", count=causes.count(WRONG_INPUT)))
    if any(cause not in (NOT_FINITE, WRONG_INPUT) for cause in causes):
        again = _same_command(out, replace(options, retry=True))
        print(f"{t('run.try_again')}\n  {again}")
    if done:
        for key, name in (("run.ranking", "rank"), ("run.page", "watch"), ("run.report", "report")):
            print(t(key, command=command_line("addnorm", name, out)))


def _same_command(out: Path, options: Options) -> str:
    # A study that is a file is a path: its name may begin with a dash.
    study: str | Path = Path(options.study) if options.study.startswith("-") else options.study
    given: list[tuple[str, object]] = [
        ("--profile", options.profile),
        *(("--set", setting) for setting in options.set),
        ("--out", out),
        ("--until", options.until),
        ("--most", options.most),
        ("--workers", options.workers),
        ("--retry", options.retry),
        *(("--tracker", name) for name in options.tracker),
        ("--executor", options.executor),
        *((f"--executor.{name}", value) for name, _, value in (set_.partition("=") for set_ in options.executor_set)),
        ("--on-failure", options.on_failure),
        ("--on-end", options.on_end),
        ("--watch", options.watch),
    ]
    words: list[str | Path] = ["addnorm", "run", study]
    for option, value in given:
        if value is not None and value is not False:
            words += [option] if value is True else [option, value if isinstance(value, Path) else str(value)]
    return command_line(*words)
