"""Work on a list by this process and a fork of it."""

import os
import subprocess
import sys

import pytest

from addnorm.reporting.drawing import two_processes
from addnorm.reporting.drawing.two_processes import in_two_processes

HERE = os.getpid()


@pytest.fixture
def _forking(monkeypatch):
    """Torch is imported in a process of tests; nothing here uses its threads."""
    monkeypatch.setattr(two_processes, "may_fork", lambda: hasattr(os, "fork"))


@pytest.mark.usefixtures("_forking")
def test_results_keep_their_order_and_come_from_two_processes():
    found = in_two_processes(lambda number: (number, os.getpid()), range(7))
    assert [number for number, _ in found] == list(range(7))
    assert {process for _, process in found[::2]} == {HERE}
    assert len({process for _, process in found[1::2]} - {HERE}) == 1


@pytest.mark.usefixtures("_forking")
def test_large_results_arrive():
    found = in_two_processes(lambda number: bytes(number * 1_000_000), [1, 2, 3, 4])
    assert [len(each) for each in found] == [1_000_000, 2_000_000, 3_000_000, 4_000_000]


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.usefixtures("_forking")
def test_an_error_is_raised_here_whoever_met_it(place):
    def work(number):
        if number == place:
            raise LookupError("no such number")
        return bytes(1_000_000)

    with pytest.raises(LookupError, match="no such number"):
        in_two_processes(work, [0, 1, 2, 3])


@pytest.mark.usefixtures("_forking")
def test_what_a_killed_process_leaves_is_done_here():
    assert in_two_processes(lambda number: number if os.getpid() == HERE else os._exit(9), [1, 2, 3]) == [1, 2, 3]


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere")
def test_nothing_is_forked_beside_threads_or_torch():
    code = (
        "import sys, threading, os\n"
        "os.sched_getaffinity = lambda process: {0, 1}\n"
        "from addnorm.reporting.drawing.two_processes import may_fork\n"
        "print(may_fork())\n"
        "wait = threading.Event(); thread = threading.Thread(target=wait.wait); thread.start()\n"
        "print(may_fork()); wait.set(); thread.join()\n"
        "sys.modules['torch'] = None\n"
        "print(may_fork())\n"
        "os.sched_getaffinity = lambda process: {0}; del sys.modules['torch']\n"
        "print(may_fork())\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["True", "False", "False", "False"]
