"""Progress on standard error: of `addnorm run` a live table, of commands that evaluate runs one by one a bar; off a terminal, a
line every 15 seconds."""

import sys
import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.progress import Progress
from rich.table import Table

from addnorm.cli._text import duration, quantity
from addnorm.errors import JobError
from addnorm.store import RunFolder, RunStatus, State, StudyFolder
from addnorm.words import spoken, translated

_STYLES = {
    "running": "bold",
    "finished": "green",
    "failed": "red",
    "diverged": "red",
    "blocked": "yellow",
    "interrupted": "yellow",
    "queued": "dim",
}
_LINE_EVERY_S = 15.0


class Silent:
    """Progress that shows nothing."""

    def __enter__(self) -> "Silent":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, folder: StudyFolder, statuses: list[RunStatus]) -> None:
        pass

    def say(self, text: str) -> None:
        pass


_FIRST: tuple[State, ...] = ("running", "failed", "diverged", "blocked", "interrupted", "queued", "finished")
"""Order in which runs are shown if not all of them fit on the terminal."""
_FRAME = 3
"""Lines of a table that are not its runs: title, column heads and the count of hidden runs."""


class LiveTable(Silent):
    """A table of the runs that is redrawn in place; without a terminal, one line every 15 seconds.

    A table that is higher than the terminal cannot be redrawn in place. On a terminal with fewer rows than runs, running and
    failed runs are shown first, and the last line counts the others.
    """

    def __init__(self, study: str, out: Path, console: Console | None = None) -> None:
        self.study, self.out = study, out
        self.console = console or Console()
        self._live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        self._began = time.monotonic()
        self._last_line_s = 0.0
        self._steps_before: int | None = None
        self._tokens_per_step: dict[str, int] = {}

    def __enter__(self) -> "Silent":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        self.console.print(translated(text), markup=False, highlight=False)

    def show(self, folder: StudyFolder, statuses: list[RunStatus]) -> None:
        """Draw the current state."""
        trainings = {run.name: run.spec["spec"]["training"] for run in folder.all_runs()}
        self._tokens_per_step = {name: training["batch"] * training["seq"] for name, training in trainings.items()}
        speeds = {run.name: _speed(run) for run in folder.all_runs()}
        left = self._left_s(statuses)
        if self._live is not None:
            self._live.update(self._table(statuses, speeds, left), refresh=True)
        elif time.monotonic() - self._last_line_s >= _LINE_EVERY_S:
            self._last_line_s = time.monotonic()
            self.say(self._line(statuses, speeds, left))

    def _left_s(self, statuses: list[RunStatus]) -> float | None:
        """Estimate the seconds until all runs are over, from the steps that were done since the first call.

        A run that goes on at a checkpoint repeats steps that it had done, and the estimate begins anew.
        """
        done = sum(entry.step for entry in statuses)
        # From the first call on, not from the first step: steps that were done before this command took no time of its
        # own.
        if self._steps_before is None or done < self._steps_before:
            self._steps_before, self._began = done, time.monotonic()
        new_steps = done - self._steps_before
        to_do = sum(e.steps - e.step for e in statuses if not e.is_over)
        elapsed = time.monotonic() - self._began
        return to_do * elapsed / new_steps if new_steps > 0 and elapsed > 5 else None

    def _table(self, statuses: list[RunStatus], speeds: dict[str, float | None], left: float | None) -> Table:
        t = spoken()
        title = f"{self.study}   {self._count(statuses)}" + (t("progress.left", time=duration(left)) if left else "")
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for name in ("run", "state"):
            table.add_column(t(f"head.{name}"), no_wrap=True, overflow="ellipsis")
        for name in ("step", "tokens_per_s", "loss", "accuracy", "left"):
            table.add_column(t(f"head.{name}"), justify="right", no_wrap=True)
        shown = self._fitting(statuses)
        for entry in shown:
            table.add_row(*self._row(entry, speeds.get(entry.run)), style=_STYLES[entry.state])
        if len(shown) < len(statuses):
            hidden = [entry for entry in statuses if entry not in shown]
            table.add_row(t("progress.hidden", count=len(hidden), states=self._count(hidden)), style="dim")
        return table

    def _fitting(self, statuses: list[RunStatus]) -> list[RunStatus]:
        """Select as many runs as the terminal has rows for, in the order of the study."""
        room = self.console.height - _FRAME - 1  # the cursor needs the line below the table
        if len(statuses) <= room + 1:
            return statuses
        by_importance = sorted(range(len(statuses)), key=lambda index: _FIRST.index(statuses[index].state))
        selected = set(by_importance[: max(1, room)])
        return [entry for index, entry in enumerate(statuses) if index in selected]

    def _row(self, entry: RunStatus, speed: float | None) -> tuple[str, ...]:
        t = spoken()
        running = entry.state == "running"
        remaining = (entry.steps - entry.step) * self._tokens_per_step[entry.run] / speed if running and speed else None
        return (
            t("progress.run", variant=entry.variant, seed=entry.seed),
            t(f"state.{entry.state}"),
            f"{entry.step}/{entry.steps}",
            quantity(speed) if speed is not None and running else "",
            "" if entry.loss is None else f"{entry.loss:.4f}",
            "" if entry.accuracy is None else f"{entry.accuracy:.2%}",
            "" if remaining is None else duration(remaining),
        )

    def _count(self, statuses: list[RunStatus]) -> str:
        states = [entry.state for entry in statuses]
        t = spoken()
        counts = ((states.count(state), t(f"state.{state}")) for state in _STYLES if state in states)
        return t("joint.comma").join(t("progress.count", count=count, state=state) for count, state in counts)

    def _line(self, statuses: list[RunStatus], speeds: dict[str, float | None], left: float | None) -> str:
        t = spoken()
        running = [
            f"{e.variant}-s{e.seed} {e.step}/{e.steps}"
            + ("" if e.loss is None else t("progress.loss", loss=e.loss))
            + ("" if speeds.get(e.run) is None else t("progress.speed", speed=quantity(speeds[e.run] or 0)))
            for e in statuses
            if e.state == "running"
        ]
        tail = t("progress.line_left", time=duration(left)) if left else ""
        return t("progress.line", states=self._count(statuses), running=t("joint.semicolon").join(running)) + tail


def _speed(run: RunFolder) -> float | None:
    """Tokens per second of the newest training event; None before it, and if its file cannot be read."""
    try:
        newest = run.newest("train")
    except JobError:
        return None  # the run's status has the reason
    return None if newest is None else newest.get("tokens_per_s")


class ProgressReport:
    """Context that shows how many units are done.

    Args:
        unit: name of the counted things, such as "runs".
        shown: false to show nothing.
    """

    def __init__(self, unit: str, *, shown: bool) -> None:
        console = Console(stderr=True)
        self.unit, self.shown = unit, shown
        self._bar = Progress(console=console, transient=True) if shown and console.is_terminal else None
        self._task = self._bar.add_task(unit, total=None) if self._bar is not None else None
        self._last_line = time.monotonic()

    def __enter__(self) -> "ProgressReport":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def done(self, count: int, total: int, newest: str) -> None:
        """Show that `count` of `total` units are done, and the name of the newest."""
        text = spoken()(f"progress.{self.unit}", count=count, total=total, newest=newest)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=count, total=total, description=text)
        elif self.shown and time.monotonic() - self._last_line >= _LINE_EVERY_S:
            self._last_line = time.monotonic()
            print(text, file=sys.stderr)
