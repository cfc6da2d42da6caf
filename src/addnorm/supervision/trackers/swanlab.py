"""SwanLab: a project named after the study, an experiment per run, on this machine unless SWANLAB_MODE says otherwise.

SwanLab has one open experiment per process, so a run's numbers are kept here and handed on when the run ends or the
mirror stops.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addnorm.supervision.trackers import Mirror, tool


class SwanLab(Mirror):
    def __init__(self, folder: Path, study: str) -> None:
        self._swanlab = tool("swanlab", "Install it with: pip install swanlab")
        self._folder, self._study = folder, study
        self._configs: dict[str, dict[str, Any]] = {}
        self._waiting: dict[str, list[tuple[int, dict[str, float]]]] = {}

    def begin(self, run: str, config: Mapping[str, Any], known: str | None) -> str:
        self._configs[run], self._waiting[run] = dict(config), []
        return run

    def log(self, run: str, step: int, time: float, values: Mapping[str, float]) -> None:
        self._waiting[run].append((step, dict(values)))

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
        for step, values in self._waiting.pop(run):
            self._swanlab.log(values, step=step)
        self._swanlab.finish()


MIRROR = SwanLab
