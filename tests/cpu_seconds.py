"""Count the processor seconds that the tests of each folder take, in this process and in the processes that it waits for.

Wall times depend on what else the machine does; processor seconds hardly do. CONTRIBUTING.md gives a budget per folder.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

_times = os.times
"""Bound here, because tests replace functions of the standard library."""
SHOWN = 25
"""Tests that are listed by name, the most expensive first."""


def used() -> float:
    """Processor seconds of this process and of its finished children."""
    return sum(_times()[:4])  # user and system time of this process, then of its children


def folder_of(nodeid: str) -> str:
    """The folder of a test's file: `tests/web`; `docs/guide`; `.` for the readmes."""
    parts = Path(nodeid.split("::", 1)[0]).parent.parts
    return "/".join(parts[:2]) or "."


class CpuSeconds:
    """A plugin for the process that runs tests and for the one that reports them; without xdist they are the same."""

    def __init__(self) -> None:
        self.last = used()
        self.by_folder: Counter[str] = Counter()
        self.by_test: Counter[str] = Counter()

    def pytest_runtest_logstart(self) -> None:
        self.last = used()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> object:
        """Attach to the report what was used since the last one; xdist sends reports with all their attributes."""
        report = yield
        now = used()
        report.cpu_s, self.last = now - self.last, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        seconds = getattr(report, "cpu_s", 0.0)
        self.by_folder[folder_of(report.nodeid)] += seconds
        self.by_test[report.nodeid] += seconds

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if sum(self.by_folder.values()) < 60:
            return
        terminalreporter.section("processor seconds")
        for folder, seconds in sorted(self.by_folder.items()):
            terminalreporter.write_line(f"{seconds:7.1f} {folder}")
        terminalreporter.write_line(f"{sum(self.by_folder.values()):7.1f} together; the most expensive tests:")
        for nodeid, seconds in self.by_test.most_common(SHOWN):
            terminalreporter.write_line(f"{seconds:7.1f} {nodeid}")
