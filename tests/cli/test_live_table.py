"""`addnorm run`'s table on a terminal that has fewer rows than the study has runs: a real pseudo terminal of 20 rows."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import made_study
from addnorm.cli import _progress

ROWS, COLUMNS = 20, 100
DRAW = """
    import sys, time
    from dataclasses import replace
    from pathlib import Path
    from addnorm.cli._progress import LiveTable
    from addnorm.store import StudyFolder

    study = StudyFolder(Path(sys.argv[1]))
    table = LiveTable("made", study.path)
    with table:
        for time_drawn in range(4):
            statuses = [run.status() for run in study.runs()]
            for place in map(int, sys.argv[2:]):
                statuses[place] = replace(statuses[place], state="running", step=2 * time_drawn)
            table.show(study, statuses)
"""


class Screen:
    """As much of a terminal as rich uses to draw in one place: line feeds, cursor up, and erasing lines."""

    def __init__(self) -> None:
        self.lines = [""] * ROWS
        self.row = self.scrolled = 0

    def feed(self, text: str) -> None:
        for part in re.findall(r"\x1b\[\??[\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
            if part == "\n":
                if self.row == ROWS - 1:
                    self.scrolled += 1
                    self.lines = [*self.lines[1:], ""]
                else:
                    self.row += 1
            elif up := re.fullmatch(r"\x1b\[(\d*)A", part):
                self.row = max(0, self.row - int(up[1] or 1))
            elif re.fullmatch(r"\x1b\[\d*K", part):
                self.lines[self.row] = ""
            elif not part.startswith("\x1b") and part != "\r":
                self.lines[self.row] += part


def drawn(folder: Path, *running: int) -> Screen:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "", "LINES": ""}
    command = [sys.executable, "-c", textwrap.dedent(DRAW), str(folder), *map(str, running)]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not more:
            break
        said += more
    os.close(ours)
    screen = Screen()
    screen.feed(said.decode())
    assert process.wait() == 0, said.decode()
    return screen


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads a pseudo terminal's end as Linux tells it")
def test_more_runs_than_rows_show_those_at_work_and_count_the_others(tmp_path: Path) -> None:
    study = made_study.make(tmp_path / "study", seeds=range(16))
    made_study.finish(study.runs()[0])
    screen = drawn(study.path, 33, 41)
    assert screen.scrolled == 0, "a table that scrolls leaves its old drawings behind and flickers"
    lines = [line.rstrip() for line in screen.lines if line.strip()]
    names = [" · ".join((run.spec["variant"], f"seed {run.spec['seed']}")) for run in study.runs()]
    assert lines[0].split("   ") == ["made", "2 running, 1 finished, 45 queued"]
    assert sum(line.startswith(names[33]) and " running " in line and "6/40" in line for line in lines) == 1
    assert sum(line.startswith(names[41]) for line in lines) == 1
    assert lines[-1].startswith("… and 32 more: 1 finished, 31 queued")
    assert len(lines) == ROWS - 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads a pseudo terminal's end as Linux tells it")
def test_runs_that_fit_are_all_shown(tmp_path: Path) -> None:
    one = {"base": made_study.MODELS["base"]}
    fitting = made_study.make(tmp_path / "fitting", seeds=range(ROWS - 3), models=one)
    lines = [line.rstrip() for line in drawn(fitting.path, 3).lines if line.strip()]
    assert len(lines) == ROWS - 1
    assert lines[-1].startswith(f"base · seed {ROWS - 4}")
    one_more = made_study.make(tmp_path / "one more", seeds=range(ROWS - 2), models=one)
    assert drawn(one_more.path, 3).lines[ROWS - 2].startswith("… and 2 more")


def test_steps_that_a_resumed_run_repeats_are_not_taken_for_a_slow_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = made_study.make(tmp_path / "study", seeds=[0], models={"base": made_study.MODELS["base"]})
    status = study.runs()[0].status()
    said = io.StringIO()
    table = _progress.LiveTable("made", study.path, Console(file=said, width=200))
    # Killed at step 30 of 40, it goes on at its checkpoint of step 10, at a step per second.
    for seconds, step in ((0, 30), (20, 10), (40, 30)):
        clock = SimpleNamespace(monotonic=lambda seconds=seconds: 1000.0 + seconds)
        monkeypatch.setattr(_progress, "time", clock)
        table.show(study, [replace(status, state="running", step=step, steps=40)])
    assert said.getvalue().splitlines()[-1].endswith("about 10 s left")
