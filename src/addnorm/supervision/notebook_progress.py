"""Progress of `addnorm.run` in a notebook: one output that is updated in place."""

import importlib
import sys
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from addnorm.store import RunStatus, StudyFolder


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
