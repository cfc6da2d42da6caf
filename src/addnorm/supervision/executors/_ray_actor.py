"""The actor that trains one run: it starts the worker command, shares its fate, and ends with it.

It is sent to Ray by value and needs nothing but Python and Ray, so that a process of Ray imports neither addnorm nor torch.
"""

import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Task:
    """Facts that an actor needs about its run."""

    actor: str
    namespace: str
    command: tuple[str, ...]
    """The worker command with the run's folder."""
    folder: str
    """The run's folder."""
    code: str
    """File for the worker's exit code."""
    cwd: str
    environment: dict[str, str]
    """Variables in addition to those that Ray gives its processes."""
    stopped: int
    """Exit code of a worker that was asked to stop."""


class RunActor:
    """Trains a run from its construction on, so that Ray can start it again elsewhere when no supervisor is at work.

    Args:
        task: facts about the run.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        # The worker is killed when the thread that started it ends, which it does with this process.
        threading.Thread(target=self._train, daemon=True).start()

    def _train(self) -> None:
        task = self._task
        try:
            code = _work(task)
            # A worker that stops without the file STOP was stopped by its node or by Ray. The actor ends without
            # `ray.kill`, which Ray counts as a crash and answers with a restart; with the file, it is over for good.
            if code == task.stopped and not os.path.exists(os.path.join(task.folder, "STOP")):
                os._exit(code)  # stopped from outside, and is to go on: Ray starts this actor again where there is room
            _write(Path(task.code), f"{code}\n")
        finally:
            import ray  # there, and not always here

            # The only end after which Ray does not start a detached actor again.
            ray.kill(ray.get_actor(task.actor, namespace=task.namespace))


def _work(task: Task) -> int:
    """Run the worker command. Returns its exit code, -N after signal N."""
    with suppress(FileNotFoundError):
        os.unlink(task.code)  # of the attempt before
    with open(os.path.join(task.folder, "log.txt"), "ab") as log:
        try:
            worker = subprocess.Popen(
                task.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=task.cwd if os.path.isdir(task.cwd) else None,
                env={**os.environ, **task.environment},
                preexec_fn=_dying_with(os.getpid()),
            )
        except OSError as error:
            log.write(f"could not start {task.command[0]}: {error}\n".encode())
            raise
        return worker.wait()


def _dying_with(parent: int) -> Callable[[], None] | None:
    """A function that makes a new process be killed when its parent dies; None where the kernel cannot."""
    try:
        control = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None

    def bind() -> None:
        # Between the fork and this call the parent may have died already; the kernel then sends nothing, so it is asked
        # after.
        control(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return bind


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    os.replace(temporary, path)
