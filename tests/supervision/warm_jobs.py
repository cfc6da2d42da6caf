"""Workers and supervisors as forks of one process that has imported torch, for jobs of a real scheduler.

A job starts a small client in place of the worker command; the worker is forked beside it and shares its fate: the client
passes SIGTERM on and ends with the worker's exit code, and a client that is killed takes its worker with it.

    python warm_jobs.py SOCKET                          serve
    python -S -I warm_jobs.py SOCKET RUN_DIR            a worker
"""

import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress

_RECORDED = 4
"""Steps after which runs have recorded some: tests wait for that before they interrupt them."""
HERE = os.path.dirname(os.path.abspath(__file__))


def client(path: str, *arguments: str) -> int:
    """Have a worker trained, and share its fate."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(path)
        signal.signal(signal.SIGTERM, lambda number, frame: channel.send(b"T"))
        request = {"do": "work", "arguments": arguments, "environment": dict(os.environ)}
        channel.sendall(json.dumps(request).encode() + b"\n")
        answer = channel.recv(16)
    return int(answer) if answer else 1


class Supervisor:
    """`addnorm run ARGUMENTS` in a warm process, which is killed by `kill`.

    Args:
        path: the server's socket.
        log: takes what the command prints.
        arguments: the arguments.
        environment: variables beside those of this process.
    """

    def __init__(self, path: str, log: str, *arguments: str, environment: dict[str, str]) -> None:
        self._channel = socket.socket(socket.AF_UNIX)
        self._channel.connect(path)
        request = {"do": "run", "arguments": arguments, "environment": {**os.environ, **environment}, "log": log}
        request["socket"] = path
        self._channel.sendall(json.dumps(request).encode() + b"\n")

    def interrupt(self) -> None:
        """Send SIGTERM, which a supervisor takes as Ctrl-C."""
        self._channel.send(b"T")

    def kill(self) -> None:
        """Kill -9."""
        self._channel.close()

    def poll(self) -> int | None:
        """The exit code; None while it is at work."""
        ready, _, _ = select.select([self._channel], [], [], 0)
        return self.wait(1) if ready else None

    def wait(self, timeout_s: float) -> int:
        """The exit code."""
        self._channel.settimeout(timeout_s)
        try:
            return int(self._channel.recv(16))
        finally:
            self._channel.close()


def serve(path: str) -> None:
    """Fork a process for each request, until SIGTERM; all have been waited for then, so that their time is counted."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        try:
            while True:
                channel, _ = listener.accept()
                if os.fork() == 0:
                    listener.close()
                    os._exit(_tend(channel))
                channel.close()
        finally:
            with suppress(ChildProcessError):
                while True:
                    os.wait()


def _tend(channel: socket.socket) -> int:
    """Fork what a request asks for, and tie it to the channel."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with channel.makefile("rb") as file:
        request = json.loads(file.readline())
    pid = os.fork()
    if pid == 0:
        channel.close()
        code = 1
        try:
            os.setsid()
            os.environ.clear()
            os.environ.update(request["environment"])
            code = _work(request) if request["do"] == "work" else _run(request)
        except BaseException:  # noqa: BLE001  as Python does at the end of a process
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    end = os.pidfd_open(pid)
    while True:
        ready, _, _ = select.select([channel, end], [], [])
        if end in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            channel.send(str(code if code >= 0 else 128 - code).encode())
            return 0
        if channel.recv(1) == b"T":
            os.kill(pid, signal.SIGTERM)
        else:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return 0


def _work(request: dict) -> int:
    from pathlib import Path

    from warm import Trouble, _speak_to, befall, fork_rank

    from addnorm.store import RunFolder
    from addnorm.training import ranks, worker

    run = RunFolder(Path(request["arguments"][-1]))
    _speak_to(run.log_path)
    # A run's first attempt is slow: it must still be at work when its job is interrupted, however slow the scheduler is.
    first = not run.events_path.exists()
    pace = os.environ.get("TEST_PACE_S" if first else "TEST_LATER_PACE_S", "0")
    befall(run, Trouble(pace_s=float(pace), paced_from=_RECORDED))
    ranks.spawn = fork_rank
    return worker.main(request["arguments"])


def _run(request: dict) -> int:
    from functools import partial
    from pathlib import Path

    from warm import _speak_to

    import addnorm.supervision.run
    from addnorm import cli
    from addnorm.supervision import supervisor

    _speak_to(Path(request["log"]))
    addnorm.supervision.run.WORKER = (sys.executable, "-S", "-I", os.path.abspath(__file__), request["socket"])
    retries = int(os.environ.get("TEST_RETRIES", "3"))
    addnorm.supervision.run.supervise = partial(supervisor.supervise, tick_s=0.2, backoff_s=0.1, retries=retries)
    return cli.main(["run", *request["arguments"]])


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(client(*sys.argv[1:]))
    sys.path.insert(0, HERE)
    import warmth

    assert warmth
    serve(sys.argv[1])
