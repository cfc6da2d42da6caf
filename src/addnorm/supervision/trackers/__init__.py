"""Room of the trackers: external tools that receive a study's numbers. One file each; no tracker is ever read back.

A tracker runs in a process of its own (`addnorm.supervision.tracker_process`), which reads the event files and forwards their
numbers. Whatever the tool does (raise, hang, start threads, exit), the runs and the supervisor are not affected. Each step of
a run is forwarded once, although a resumed run repeats steps.

A tracker imports its tool when it is constructed, not when its file is imported.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addnorm.catalogue import Siblings

TRACKERS = Siblings("tracker", "addnorm.supervision.trackers", "Tracker")
"""The trackers by file name."""


class ToolMissing(Exception):
    """The tracker's tool is not installed; the message says what to install."""


class Tracker(ABC):
    """One external tool that follows one study.

    Args:
        folder: an existing folder for the tool's files.
        study: the study's name.

    Raises:
        ToolMissing: the tool is not installed.
    """

    @abstractmethod
    def __init__(self, folder: Path, study: str) -> None: ...

    @abstractmethod
    def begin(self, run: str, config: Mapping[str, Any], known: str | None) -> str:
        """Open a run before its first numbers.

        Args:
            run: the run's name.
            config: the run's spec as a flat mapping, `training.steps` to 1000.
            known: the id that an earlier process returned for this run; None the first time.

        Returns:
            The tool's id of the run, which a later process receives as `known`.
        """

    @abstractmethod
    def log(self, run: str, step: int, time: float, values: Mapping[str, float]) -> None:
        """Forward the numbers of a step: `train/loss`, `eval/accuracy`, …; `time` in seconds since 1970."""

    @abstractmethod
    def end(self, run: str, state: str) -> None:
        """Close a run that is `finished`, `failed`, `diverged` or `blocked`, or because tracking ends (`interrupted`)."""

    def flush(self) -> None:  # noqa: B027  optional: most tools send by themselves
        """Make the forwarded numbers durable; called before the position in the event files is saved."""


def import_tool(module: str, advice: str) -> Any:
    """Import a tool's module.

    Raises:
        ToolMissing: the module, or one that it imports, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ToolMissing(f"{module} cannot be imported ({error}). {advice}") from error
