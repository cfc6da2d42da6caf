"""Weights & Biases: a project named after the study, a run per run. WANDB_MODE=offline keeps everything on this machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addnorm.supervision.trackers import Mirror, tool


class Wandb(Mirror):
    def __init__(self, folder: Path, study: str) -> None:
        self._wandb = tool("wandb", "Install it with: pip install wandb")
        self._folder, self._study = folder, study
        self._open: dict[str, Any] = {}

    def begin(self, run: str, config: Mapping[str, Any], known: str | None) -> str:
        # create_new (wandb 0.19.10 and later): several runs are open at once in this one process.
        self._open[run] = self._wandb.init(
            project=self._study,
            name=run,
            id=run,
            resume="allow",
            reinit="create_new",
            config=dict(config),
            dir=str(self._folder),
        )
        return run

    def log(self, run: str, step: int, time: float, values: Mapping[str, float]) -> None:
        # A step of W&B's own must never go back, and an evaluation comes at the step of a training event.
        self._open[run].log({**values, "step": step})

    def end(self, run: str, state: str) -> None:
        self._open.pop(run).finish(exit_code=0 if state in ("finished", "interrupted") else 1)


MIRROR = Wandb
