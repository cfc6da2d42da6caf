"""Progress of a command that evaluates runs one by one, on standard error: a bar on a terminal, else a line now and then."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import Progress

LINE_EVERY_S = 15.0


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
        text = f"{count} of {total} {self.unit}, last {newest}"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=count, total=total, description=text)
        elif self.shown and time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            print(text, file=sys.stderr)
