"""Slurm's commands, and the queue as `squeue` prints it. Where Slurm refuses or does not answer, they raise a JobError."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from addnorm.errors import InputError, JobError

NEEDED = ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun")
_TIMEOUT_S = 60.0
_AT_A_TIME = 500
_GONE = ("Invalid job id", "already completing or completed", "already finished")
"""Answers of scancel about a job that has ended meanwhile."""
_ID = re.compile(r"(\d+)_(\d+)")


def missing_command() -> str | None:
    """The first of Slurm's commands that is not on the PATH."""
    return next((name for name in NEEDED if shutil.which(name) is None), None)


def ask(*command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands, whatever it returns.

    Raises:
        JobError: it cannot be run, or does not return within a minute.
    """
    try:
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=_environment()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError(f"could not run {command[0]}: {error}.") from error


def answer(*command: str) -> str:
    """Output of one of Slurm's commands."""
    result = ask(*command)
    if result.returncode != 0:
        raise JobError(f"{command[0]} failed: {last_line(result.stderr)}")
    return result.stdout


def last_line(text: str) -> str:
    """The last line of an error message, which has the cause."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it gave no reason").strip()


def submit(script: str) -> str:
    """Submit a script. Returns the job's number."""
    return answer("sbatch", "--parsable", script).strip().partition(";")[0]


def cancel(jobs: Sequence[str], *, waiting: bool) -> None:
    """Cancel jobs, or only those among them that have not started."""
    for first in range(0, len(jobs), _AT_A_TIME):
        result = ask("scancel", *(["--state=PENDING"] if waiting else []), *jobs[first : first + _AT_A_TIME])
        problems = [line for line in result.stderr.splitlines() if not any(text in line for text in _GONE)]
        if problems:
            raise JobError(f"scancel failed: {problems[-1]}")


def require_partition(name: str | None) -> None:
    """Refuse a partition that does not exist.

    Raises:
        InputError: the message has the partitions that there are.
    """
    known = sorted(set(answer("sinfo", "-h", "-o", "%R").split()))
    if name is not None and not set(name.split(",")) <= set(known):
        raise InputError(f"executor.partition: expected one of {', '.join(known)}, got {name!r}.")


def largest_array() -> int:
    """Number of jobs that one array may have (MaxArraySize; Slurm's default where the configuration cannot be read)."""
    if missing_command() is not None:
        return 1001
    result = ask("scontrol", "show", "config")
    size = re.search(r"^MaxArraySize\s*=\s*(\d+)", result.stdout, re.MULTILINE)
    return max(1, int(size.group(1))) if size else 1001


@dataclass(frozen=True)
class QueuedJob:
    """A job of an array in the queue."""

    id: str
    """Such as 12_3."""
    state: str
    reason: str
    node: str

    @property
    def is_waiting(self) -> bool:
        """True for a job that no node works on."""
        return not self.node

    @property
    def could_not_start(self) -> bool:
        """True for a job that a node failed to start and that Slurm therefore holds."""
        return self.is_waiting and self.reason.replace("_", " ") == "launch failed requeued held"


class Queue:
    """The jobs in Slurm's queue, asked for at most once in `pause_s` seconds.

    Args:
        pause_s: seconds between two questions.
    """

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._entries: dict[tuple[str, int], QueuedJob] | None = None
        self._names: frozenset[str] = frozenset()
        self.asked = -float("inf")
        """Time at which the newest answer was asked for, by the monotonic clock."""
        self._tried = -float("inf")
        self.trouble: str | None = None
        """Reason why the newest question was not answered; the answer before it then still stands."""

    def look(self, names: Collection[str]) -> dict[tuple[str, int], QueuedJob]:
        """Jobs by the name and the index of their array.

        Args:
            names: names of the jobs to ask for.

        Raises:
            JobError: Slurm has not answered yet.
        """
        now = time.monotonic()
        # A name that was never asked for is asked for at once: its jobs were just submitted, and the last answer cannot
        # show them. Names are never dropped, so that the answer of one question serves every caller until the next is
        # due.
        if not self._names and not names:
            self._entries, self.asked = {}, now
        elif set(names) - self._names or now - self._tried >= self._pause_s:
            self._tried = now
            names = self._names.union(names)
            try:
                output = answer("squeue", "-h", "-r", "-o", "%i|%T|%r|%N|%j", f"--name={','.join(sorted(names))}")
            except JobError as error:
                # The controller of a busy cluster is away for minutes. The answer before stands meanwhile: taken for an
                # empty queue, every job would count as ended and be submitted again. Only a first question without
                # answer is an error.
                self.trouble = str(error)
                if self._entries is None:
                    raise
            else:
                self._entries, self._names, self.asked, self.trouble = _entries(output), names, now, None
        return self._entries or {}


def _entries(output: str) -> dict[tuple[str, int], QueuedJob]:
    entries = {}
    for line in output.splitlines():
        job, state, reason, node, name = line.strip().split("|", 4)
        number = _ID.fullmatch(job)
        if number is not None:
            entries[name, int(number.group(2))] = QueuedJob(job, state, reason, node)
    return entries


def _environment() -> dict[str, str]:
    """The environment without the present job's, if the supervisor is itself a job: its limits are not the workers'."""
    is_job = "SLURM_JOB_ID" in os.environ
    return {
        name: value
        for name, value in os.environ.items()
        if not (is_job and name.startswith("SLURM_") and name != "SLURM_CONF")
    }
