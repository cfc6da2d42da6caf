"""MLflow: an experiment named after the study, a run per run, at MLFLOW_TRACKING_URI (or MLflow's own default)."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addnorm.statistics.run_tables.trackers import SUMMARY
from addnorm.supervision.trackers import VERDICTS, SentVerdicts, Tracker, import_tool

_STATUS = {"finished": "FINISHED", "interrupted": "KILLED"}
_LONGEST = 500
_LONGEST_TAG = 5000
_NO_PART_OF_A_NAME = re.compile(r"[^A-Za-z0-9_\-. /]")
"""MLflow refuses a metric or tag with any other letter in its name."""


class Mlflow(Tracker):
    def __init__(self, folder: Path, study: str) -> None:
        mlflow = import_tool("mlflow", "Install it with: pip install mlflow")
        self._metric = mlflow.entities.Metric
        self._client = mlflow.MlflowClient()
        experiment = self._client.get_experiment_by_name(study)
        self._experiment = experiment.experiment_id if experiment is not None else self._client.create_experiment(study)
        self._ids: dict[str, str] = {}

    def begin(self, run: str, config: Mapping[str, Any], known: str | None) -> str:
        if known is None:
            known = str(self._client.create_run(self._experiment, run_name=run).info.run_id)
            for name, value in config.items():
                self._client.log_param(known, name, str(value)[:_LONGEST])
        else:
            self._client.update_run(known, status="RUNNING")
        self._ids[run] = known
        return known

    def log(self, run: str, step: int, time: float, values: Mapping[str, float]) -> None:
        metrics = [self._metric(name, value, int(1000 * time), step) for name, value in values.items()]
        self._client.log_batch(self._ids[run], metrics=metrics)

    def end(self, run: str, state: str) -> None:
        self._client.set_terminated(self._ids.pop(run), status=_STATUS.get(state, "FAILED"))

    def conclude(self, verdicts: SentVerdicts, known: str | None) -> str:
        if known is None:
            known = str(self._client.create_run(self._experiment, run_name=VERDICTS).info.run_id)
        for name, text in {SUMMARY: VERDICTS, **verdicts.texts}.items():
            self._client.set_tag(known, _NO_PART_OF_A_NAME.sub("_", name), text[:_LONGEST_TAG])
        for name, value in verdicts.numbers.items():
            self._client.log_metric(known, _NO_PART_OF_A_NAME.sub("_", name), value, step=verdicts.runs)
        self._client.set_terminated(known, status=_STATUS["finished"])
        return known
