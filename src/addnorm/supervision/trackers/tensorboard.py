"""TensorBoard: one folder of event files per run, under DIR/mirrors/tensorboard. View it with `tensorboard --logdir`.

The verdicts are a table among its texts.
"""

from collections.abc import Mapping
from pathlib import Path
from time import time
from typing import Any

from addnorm.supervision.trackers import VERDICTS, SentVerdicts, Tracker, import_tool

_ADVICE = "Install it with: pip install 'addnorm[tensorboard]'"


class TensorBoard(Tracker):
    def __init__(self, folder: Path, study: str) -> None:
        self._folder = folder
        self._writer = import_tool("tensorboard.summary.writer.event_file_writer", _ADVICE).EventFileWriter
        self._event = import_tool("tensorboard.compat.proto.event_pb2", _ADVICE).Event
        self._summary = import_tool("tensorboard.compat.proto.summary_pb2", _ADVICE).Summary
        self._tensor = import_tool("tensorboard.compat.proto.tensor_pb2", _ADVICE).TensorProto
        self._text = import_tool("tensorboard.plugins.text.metadata", _ADVICE)
        self._open: dict[str, Any] = {}

    def begin(self, run: str, config: Mapping[str, Any], known: str | None) -> str:
        self._open[run] = self._writer(str(self._folder / run))
        return run

    def log(self, run: str, step: int, time: float, values: Mapping[str, float]) -> None:
        entries = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._open[run].add_event(self._event(wall_time=time, step=step, summary=self._summary(value=entries)))

    def end(self, run: str, state: str) -> None:
        self._open.pop(run).close()

    def conclude(self, verdicts: SentVerdicts, known: str | None) -> str:
        text = self._tensor(dtype="DT_STRING", string_val=[_markdown(verdicts).encode()])
        metadata = self._text.create_summary_metadata(display_name=VERDICTS, description="")
        summary = self._summary(value=[self._summary.Value(tag=VERDICTS, tensor=text, metadata=metadata)])
        writer = self._writer(str(self._folder / VERDICTS))
        writer.add_event(self._event(wall_time=time(), step=verdicts.runs, summary=summary))
        writer.close()
        return VERDICTS

    def flush(self) -> None:
        for writer in self._open.values():
            writer.flush()


_COLUMNS = ("variant", "reference", "verdict", "difference", "low", "high", "seeds")


def _markdown(verdicts: SentVerdicts) -> str:
    lines = [verdicts.answer, "", f"| {' | '.join(_COLUMNS)} |", "| --- " * len(_COLUMNS) + "|"]
    for row in verdicts.comparisons:
        cells = (row.get(name, "–") for name in _COLUMNS)
        shown = (cell if isinstance(cell, str) else f"{cell:.5g}" for cell in cells)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in shown)} |")
    return "\n".join(lines)
