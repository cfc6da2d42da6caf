"""Room of the trackers: external tools that receive a study's numbers. One file each; no tracker is ever read back.

A tracker runs in a process of its own (`addnorm.supervision.tracker_process`), which reads the event files and forwards their
numbers. Whatever the tool does (raise, hang, start threads, exit), the runs and the supervisor are not affected. Each step of
a run is forwarded once, although a resumed run repeats steps.

A tracker imports its tool when it is constructed, not when its file is imported.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from addnorm.catalogue import Siblings

TRACKERS = Siblings("tracker", "addnorm.supervision.trackers", "Tracker")
"""The trackers by file name."""


VERDICTS = "verdicts"
"""Name of the run that holds a study's verdicts; the names of trained runs end in a seed and a hash."""


@dataclass(frozen=True, kw_only=True)
class SentVerdicts:
    """Verdicts of a study all of whose runs have ended, and the answer that follows from them.

    Example:
        >>> rows = ({"variant": "deep", "reference": "base", "verdict": "better", "difference": -0.5, "seeds": 3},)
        >>> verdicts = SentVerdicts(answer="deep is better than base.", comparisons=rows, runs=6)
        >>> verdicts.texts
        {'answer': 'deep is better than base.', 'verdict/deep - base': 'better'}
        >>> verdicts.numbers
        {'difference/deep - base': -0.5, 'seeds/deep - base': 3.0}
    """

    answer: str
    """The question, what was decided and what is open, in sentences."""
    comparisons: Sequence[Mapping[str, str | float]]
    """`variant`, `reference`, `verdict` (`none` before one is possible) and, where known, `difference`, `low` and `high` in the
    measure's unit, and `seeds`."""
    runs: int
    """Runs behind them."""

    @property
    def texts(self) -> dict[str, str]:
        """The answer and each verdict, by name."""
        return {"answer": self.answer} | {
            f"{name}/{row['variant']} - {row['reference']}": value
            for row in self.comparisons
            for name, value in row.items()
            if name not in ("variant", "reference") and isinstance(value, str)
        }

    @property
    def numbers(self) -> dict[str, float]:
        """Differences, ends of their intervals and counts of seeds, by name."""
        return {
            f"{name}/{row['variant']} - {row['reference']}": float(value)
            for row in self.comparisons
            for name, value in row.items()
            if not isinstance(value, str)
        }


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

    @abstractmethod
    def conclude(self, verdicts: SentVerdicts, known: str | None) -> str:
        """Store what the study has decided as the summary of a run named `verdicts`, with `SUMMARY` among its settings or tags.

        Args:
            verdicts: of the study, all of whose runs have ended.
            known: the id that an earlier call returned; None the first time.

        Returns:
            The tool's id of the run.
        """

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
