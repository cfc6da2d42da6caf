"""Weights & Biases: a project named after the study, a run per run. WANDB_MODE=offline stores everything locally."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addnorm.statistics.run_tables.trackers import SUMMARY
from addnorm.supervision.trackers import VERDICTS, SentVerdicts, Tracker, import_tool


class Wandb(Tracker):
    def __init__(self, folder: Path, study: str) -> None:
        self._wandb = import_tool("wandb", "Install it with: pip install wandb")
        self._folder, self._study = folder, study
        self._open: dict[str, Any] = {}

    def begin(self, run: str, config: Mapping[str, Any], known: str | None) -> str:
        # The page draws the seeds of a group as one curve with its spread.
        self._open[run] = self._init(run, config, group=config.get("variant"))
        return run

    def log(self, run: str, step: int, time: float, values: Mapping[str, float]) -> None:
        # W&B's own step must increase, and an evaluation has the same step as a training event.
        self._open[run].log({**values, "step": step})

    def end(self, run: str, state: str) -> None:
        self._open.pop(run).finish(exit_code=0 if state in ("finished", "interrupted") else 1)

    def conclude(self, verdicts: SentVerdicts, known: str | None) -> str:
        run = self._init(VERDICTS, {SUMMARY: VERDICTS})
        run.summary.update({**verdicts.texts, **verdicts.numbers})
        run.finish(exit_code=0)
        return VERDICTS

    def _init(self, run: str, config: Mapping[str, Any], **further: Any) -> Any:
        # create_new (wandb 0.19.10 and later): this process has several runs open at once.
        return self._wandb.init(
            project=self._study,
            name=run,
            id=run,
            resume="allow",
            reinit="create_new",
            config=dict(config),
            dir=str(self._folder),
            **further,
        )
