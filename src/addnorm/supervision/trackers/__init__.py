"""Room of the mirrors: other tools that are shown a study's numbers. One file each; none is ever read back.

A mirror runs in a process of its own (`addnorm.supervision.tracker_process`), which reads the event files and hands their
numbers on. So whatever a tool does (raise, hang, start threads, end its process), no run and no supervisor notices. Each
step of a run is handed on once, though a resumed run writes replayed steps again.

A sibling imports its tool when it is made, not before.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addnorm.errors import UnknownName


class Absent(Exception):
    """The tool is not installed; the message says what to install."""


class Mirror(ABC):
    """One tool, following one study.

    Args:
        folder: where the tool may keep files; it exists.
        study: the study's name.

    Raises:
        Absent: the tool is not installed.
    """

    @abstractmethod
    def __init__(self, folder: Path, study: str) -> None: ...

    @abstractmethod
    def begin(self, run: str, config: Mapping[str, Any], known: str | None) -> str:
        """Open a run, before anything of it is handed on.

        Args:
            run: its name.
            config: its spec, flat: `training.steps` to 1000.
            known: what an earlier process got for this run; None the first time.

        Returns:
            The name by which the tool knows the run: what a later process is given as `known`.
        """

    @abstractmethod
    def log(self, run: str, step: int, time: float, values: Mapping[str, float]) -> None:
        """Hand on what happened at a step: `train/loss`, `eval/accuracy`, …; `time` in seconds since 1970."""

    @abstractmethod
    def end(self, run: str, state: str) -> None:
        """The run has ended as `finished`, `failed`, `diverged` or `blocked`, or the mirror is to stop (`interrupted`)."""

    def flush(self) -> None:  # noqa: B027  tools that send by themselves have nothing to do here
        """Make what was handed on so far safe; called before we remember that it was."""


def kinds() -> tuple[str, ...]:
    """Names of the mirrors, which are their files' names."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_")))


def mirror_class(kind: str) -> type[Mirror]:
    """The mirror of that name.

    Raises:
        UnknownName: no such mirror.
    """
    if kind not in kinds():
        raise UnknownName("mirror", kind, kinds())
    module = importlib.import_module(f"addnorm.supervision.trackers.{kind}")
    found: type[Mirror] = module.MIRROR
    return found


def tool(module: str, advice: str) -> Any:
    """A tool's module.

    Raises:
        Absent: it, or something that it needs, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Absent(f"{module} cannot be imported ({error}). {advice}") from error
