"""trackio: a project named after the study, a run per run, in trackio's data folder. View it with `trackio show`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addnorm.statistics.run_tables.trackers import SUMMARY
from addnorm.supervision.trackers import VERDICTS, SentVerdicts, Tracker, import_tool


class Trackio(Tracker):
    def __init__(self, folder: Path, study: str) -> None:
        self._trackio = import_tool("trackio", "Install it with: pip install 'addnorm[trackio]'")
        self._study = study
        self._open: dict[str, Any] = {}

    def begin(self, run: str, config: Mapping[str, Any], known: str | None) -> str:
        resume = "never" if known is None else "allow"
        self._open[run] = self._trackio.init(project=self._study, name=run, config=dict(config), resume=resume)
        return run

    def log(self, run: str, step: int, time: float, values: Mapping[str, float]) -> None:
        self._open[run].log(dict(values), step=step)

    def end(self, run: str, state: str) -> None:
        self._open.pop(run).finish()

    def conclude(self, verdicts: SentVerdicts, known: str | None) -> str:
        # trackio has no summary: words are settings of the run, numbers its values at the number of runs behind them.
        resume = "never" if known is None else "allow"
        config = {SUMMARY: VERDICTS, **verdicts.texts}
        run = self._trackio.init(project=self._study, name=VERDICTS, config=config, resume=resume)
        if verdicts.numbers:
            run.log(verdicts.numbers, step=verdicts.runs)
        run.finish()
        return VERDICTS
