"""TensorBoard: one folder of event files per run, under DIR/mirrors/tensorboard. View it with `tensorboard --logdir`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from addnorm.supervision.trackers import Tracker, import_tool

_ADVICE = "Install it with: pip install 'addnorm[tensorboard]'"


class TensorBoard(Tracker):
    def __init__(self, folder: Path, study: str) -> None:
        self._folder = folder
        self._writer = import_tool("tensorboard.summary.writer.event_file_writer", _ADVICE).EventFileWriter
        self._event = import_tool("tensorboard.compat.proto.event_pb2", _ADVICE).Event
        self._summary = import_tool("tensorboard.compat.proto.summary_pb2", _ADVICE).Summary
        self._open: dict[str, Any] = {}

    def begin(self, run: str, config: Mapping[str, Any], known: str | None) -> str:
        self._open[run] = self._writer(str(self._folder / run))
        return run

    def log(self, run: str, step: int, time: float, values: Mapping[str, float]) -> None:
        entries = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._open[run].add_event(self._event(wall_time=time, step=step, summary=self._summary(value=entries)))

    def end(self, run: str, state: str) -> None:
        self._open.pop(run).close()

    def flush(self) -> None:
        for writer in self._open.values():
            writer.flush()
