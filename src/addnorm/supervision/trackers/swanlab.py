"""SwanLab: a project named after the study, an experiment per run, stored locally unless SWANLAB_MODE is set.

SwanLab has one open experiment per process, so a run's numbers are collected here and sent when the run ends or tracking
stops.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addnorm.statistics.run_tables.trackers import SUMMARY
from addnorm.supervision.trackers import VERDICTS, SentVerdicts, Tracker, import_tool


class SwanLab(Tracker):
    def __init__(self, folder: Path, study: str) -> None:
        self._swanlab = import_tool("swanlab", "Install it with: pip install swanlab")
        self._folder, self._study = folder, study
        self._configs: dict[str, dict[str, Any]] = {}
        self._pending: dict[str, list[tuple[int, dict[str, float]]]] = {}

    def begin(self, run: str, config: Mapping[str, Any], known: str | None) -> str:
        self._configs[run], self._pending[run] = dict(config), []
        return run

    def log(self, run: str, step: int, time: float, values: Mapping[str, float]) -> None:
        self._pending[run].append((step, dict(values)))

    def end(self, run: str, state: str) -> None:
        self._swanlab.init(
            project=self._study,
            experiment_name=run,
            id=run,
            resume="allow",
            config=self._configs.pop(run),
            logdir=str(self._folder),
            mode=os.environ.get("SWANLAB_MODE", "local"),
        )
        for step, values in self._pending.pop(run):
            self._swanlab.log(values, step=step)
        self._swanlab.finish()

    def conclude(self, verdicts: SentVerdicts, known: str | None) -> str:
        # SwanLab has no summary: words are settings of the run, numbers its values at the number of runs behind them.
        self._configs[VERDICTS] = {SUMMARY: VERDICTS, **verdicts.texts}
        self._pending[VERDICTS] = [(verdicts.runs, verdicts.numbers)] if verdicts.numbers else []
        self.end(VERDICTS, "finished")
        return VERDICTS
