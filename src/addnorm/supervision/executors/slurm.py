"""Workers as jobs of Slurm: one array for a study, each of its jobs with one run or several.

Why: it needs nothing but Slurm's own commands, and no process that must stay alive. A job that is warned before its time
limit, preempted, or whose node dies is queued again and resumes its runs. The supervisor submits what is neither done nor in
the queue, and may be stopped and started again anywhere the study's folder is seen.

    OUT/slurm/TOKEN/runs        names of the runs, one a line, in the order of the array
    OUT/slurm/TOKEN/array.sh    submitted with sbatch; its jobs are called addnorm-TOKEN
    OUT/slurm/TOKEN/worker.sh   run by each job for each of its runs
    OUT/slurm/TOKEN/3.code      exit code of the worker of run 3

The folder exists before the array is submitted, and the queue gives the array's name, so nothing has to be recorded
afterwards: a supervisor that dies in between leaves a folder without jobs.
"""

import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import ClassVar

from addnorm.errors import InputError, JobError
from addnorm.fields import require, require_at_least
from addnorm.store import RunFolder
from addnorm.store.files import make_folder, remove, write_atomic
from addnorm.supervision.executors import ExecutorSpec, Work, WorkerState
from addnorm.supervision.executors import _slurm_commands as commands
from addnorm.supervision.executors._adopting import AdoptingExecutor, recorded_code, request_stops
from addnorm.supervision.executors._slurm_script import array_script, job_name, worker_script
from addnorm.training.exit_code import ExitCode

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


@dataclass(frozen=True, kw_only=True)
class Slurm(ExecutorSpec):
    """One array of jobs for a study. `at_once` limits the runs at work; null leaves it to Slurm."""

    partition: str | None = None
    """Partition; the cluster's default if null."""
    account: str | None = None
    qos: str | None = None
    time_limit: str | None = None
    """Longest attempt, as Slurm writes it: minutes, `HH:MM:SS` or `D-HH:MM:SS`. A run that needs longer is queued again."""
    gpus: int = 0
    """GPUs of a job, which all of its runs share."""
    pack: int = 1
    """Runs in a job, trained side by side: several small runs fill a GPU."""
    cpus: int | None = None
    """Cores for each run; if null, `training.threads` for each of its `training.devices`."""
    memory: str | None = None
    """Memory of a job, such as `16G`."""
    options: tuple[str, ...] = ()
    """Further options of sbatch, such as `--constraint=a100`."""
    setup: tuple[str, ...] = ()
    """Lines of the job's script before its workers start, such as `module load cuda`."""
    notice_s: int = 60
    """Seconds before the time limit at which workers are asked to save a checkpoint."""
    poll_s: float = 10.0
    """Seconds between two looks at the queue."""
    probe_s: int = 10
    """Seconds to wait for a free node that says whether it sees the study's folder; without one, each job looks itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "pack", "notice_s", "probe_s")
        require_at_least(self, 0, "gpus")
        require(self, "cpus", self.cpus is None or self.cpus >= 1, "a whole number of at least 1, or null")
        require(self, "poll_s", self.poll_s > 0, "a positive number of seconds")
        require(self, "options", all(option.startswith("-") for option in self.options), "options such as --mem=16G")
        if self.time_limit is not None:
            require(self, "time_limit", _TIME.fullmatch(self.time_limit) is not None, "minutes, HH:MM:SS or D-HH:MM:SS")
            require(
                self, "time_limit", self.longest_attempt_s > 0, f"more than {self.notice_s} s, the notice before it"
            )

    @property
    def longest_attempt_s(self) -> float:
        if self.time_limit is None:
            return float("inf")
        return _seconds(self.time_limit) - self.notice_s

    @property
    def trains_on_gpus(self) -> bool:
        return self.gpus > 0


@dataclass(frozen=True)
class _Job:
    """The job of one run."""

    token: str
    """Of its array."""
    place: int
    """Of the run in its array."""
    task: int
    """Of the job in its array."""
    id: str
    submitted: float
    """By the monotonic clock; answers of the queue that were asked for before say nothing."""
    claims: int
    """Claims of the run before its worker began: without a new one, it never did."""

    @property
    def key(self) -> tuple[str, int]:
        return job_name(self.token), self.task


class SlurmExecutor(AdoptingExecutor[_Job]):
    """Jobs of Slurm.

    Args:
        spec: the settings.
        work: the study's folder, threads and worker command.
    """

    _PREFIX: ClassVar = "slurm:"

    def __init__(self, spec: Slurm, work: Work) -> None:
        super().__init__()
        self.spec, self.work = spec, work
        self.folder = work.folder / "slurm"
        self._queue = commands.Queue(spec.poll_s)
        self._entries: Mapping[tuple[str, int], commands.QueuedJob] = {}
        """The queue's newest answer."""
        self._not_started: dict[str, str] = {}
        """Reasons for which Slurm held jobs that are cancelled but may still be in its queue, by id."""
        self._asked: dict[str, float] = {}
        self._probed = False

    @classmethod
    def of(cls, spec: Slurm, work: Work) -> "SlurmExecutor":
        obstacle = cls.obstacle()
        if obstacle is not None:
            raise InputError(f"executor slurm: expected a machine that submits to Slurm, got {obstacle}.")
        work.require_gpus(spec.gpus, "job")
        _require_one_run(spec, work)
        commands.require_partition(spec.partition)
        trial = _array(spec, work, work.folder / "slurm" / "trial", tasks=1, at_once=None)
        result = commands.ask("sbatch", "--test-only", stdin=trial)
        if result.returncode != 0:
            raise InputError(
                f"executor slurm: expected settings that Slurm accepts, got: {commands.last_line(result.stderr)}. "
                "Look at partition, gpus, cpus, memory and options."
            )
        return cls(spec, work)

    @classmethod
    def obstacle(cls) -> str | None:
        command = commands.missing_command()
        return None if command is None else f"no command {command} on the PATH"

    @classmethod
    def script(cls, spec: Slurm, work: Work, runs: int) -> str:
        chunks = _chunks(ceil(runs / spec.pack), _jobs_at_once(spec), commands.largest_array())
        tasks, at_once = chunks[0]
        folder = work.folder / "slurm" / "TOKEN"
        more = f"\n# {len(chunks)} arrays of at most {tasks} jobs, of which this is the first.\n" if chunks[1:] else ""
        return (
            f"# {folder}/array.sh\n{_array(spec, work, folder, tasks=tasks, at_once=at_once)}{more}\n"
            f"# {folder}/worker.sh\n{worker_script(work.command, spec.pack)}"
        )

    def start(self, runs: Sequence[RunFolder]) -> dict[str, str | JobError]:
        room = self._room()
        if room is not None and room < 1:
            return {}
        self._probe()
        answers: dict[str, str | JobError] = {}
        left = list(runs)
        for tasks, at_once in _chunks(ceil(len(left) / self.spec.pack), room, commands.largest_array()):
            chunk, left = left[: tasks * self.spec.pack], left[tasks * self.spec.pack :]
            try:
                answers |= self._submit(chunk, tasks, at_once)
            except JobError as error:
                # With jobs in the queue, a refusal is an answer about these runs, which are tried again later: a limit
                # on the jobs of a user, for instance, is lifted by their own ends. Without any, it would be repeated
                # for ever, so the user gets it.
                if not self.jobs:
                    raise  # nothing of this study is in the queue, and the reason is the user's to read
                answers |= dict.fromkeys((run.name for run in chunk), error)
        return answers

    def _find_jobs(self, runs: Mapping[str, RunFolder]) -> dict[str, str]:
        ids: dict[str, str] = {}
        # Every array that was ever written is asked for in one question: a job that was queued again by Slurm itself
        # keeps the name of an array of a supervisor long gone.
        arrays = {path.parent.name: _names(path) for path in self.folder.glob("*/runs")}
        entries = self._queue.look([job_name(token) for token in arrays])
        for token, names in arrays.items():
            for place, name in enumerate(names):
                entry = entries.get((job_name(token), place // self.spec.pack))
                if entry is not None and name in runs:
                    claims = runs[name].claims_made() if entry.is_waiting else -1
                    job = _Job(token, place, place // self.spec.pack, entry.id, time.monotonic(), claims)
                    # Of two jobs with one run, the one at work counts; the other one ends when it sees the claim.
                    if name not in ids or not entry.is_waiting:
                        self.jobs[runs[name].path] = job
                        ids[name] = self._PREFIX + job.id
        return ids

    def _look(self, runs: Sequence[RunFolder]) -> None:
        names = {job_name(job.token) for job in self.jobs.values()}
        is_open = any(run.ending() is None for run in runs if run.path in self.jobs)
        self._entries = self._queue.look(names) if is_open else {}

    def _stop(self, runs: Sequence[RunFolder]) -> None:
        request_stops(runs)
        self._cancel(runs, waiting=True)

    def _kill(self, runs: Sequence[RunFolder]) -> None:
        self._cancel(runs, waiting=False)

    def _state(self, run: RunFolder, job: _Job) -> WorkerState:
        held = run.is_held()
        ending = run.ending()
        # The files decide wherever they can; the queue is asked only about what they leave open. Its answer is seconds
        # old, may be lost, and shows a job for a while after its end, so it never contradicts a claim that is in force.
        if ending is not None and not held:
            return WorkerState(phase="ended", note=f"job {job.id} is over", code=self._code(run, job))
        entry = self._entries.get(job.key)
        if entry is not None and entry.could_not_start:
            # Slurm holds it until somebody releases it; another job may get a node that is well. It ends when the queue no
            # longer shows it, seconds after the cancellation: before, `find` would take it for a job that is still to come.
            try:
                commands.cancel([job.id], waiting=False)
            except JobError as error:  # tried again with the next look
                return WorkerState(phase="waiting", note=str(error))
            self._not_started[job.id] = entry.reason
            return WorkerState(phase="waiting", note=entry.reason)
        if entry is not None:
            note = self._queue.trouble or f"{entry.state}, {entry.reason}"
            return WorkerState(phase="waiting" if entry.is_waiting and not held else "working", note=note)
        # A job that the queue does not show has ended, unless the answer was asked for before the job was submitted.
        # Taken for ended, it would be submitted a second time.
        if held or self._queue.asked <= job.submitted:
            return WorkerState(phase="working" if held else "waiting", note=self._queue.trouble or "submitted")
        if job.id in self._not_started:
            note = f"job {job.id}: {self._not_started.pop(job.id)}"
            return WorkerState(phase="ended", note=note, code=int(ExitCode.STOPPED))
        code, note = self._code(run, job), f"job {job.id} has left the queue"
        if run.claims_made() <= job.claims:
            note += f" before its worker began, see {self.folder / job.token / str(job.task)}.out"
        return WorkerState(phase="ended", note=note, code=code)

    def _code(self, run: RunFolder, job: _Job) -> int | None:
        return recorded_code(self.folder / job.token / f"{job.place}.code", run, job.claims)

    def _submit(self, runs: Sequence[RunFolder], tasks: int, at_once: int | None) -> dict[str, str | JobError]:
        token = secrets.token_hex(5)
        folder = self.folder / token
        make_folder(folder)
        for run in runs:
            run.retry()  # an old BLOCKED would be taken for that of a worker that crashes at once
        write_atomic(folder / "runs", "".join(f"{run.name}\n" for run in runs).encode())
        write_atomic(folder / "worker.sh", worker_script(self.work.command, self.spec.pack).encode())
        script = _array(self.spec, self.work, folder, tasks=tasks, at_once=at_once)
        write_atomic(folder / "array.sh", script.encode())
        # All files come first. A supervisor that dies before this line leaves a folder without jobs, which `find`
        # passes over; one that dies after it leaves an array whose name leads back to the folder. There is no moment at
        # which jobs are unknown.
        number = commands.submit(str(folder / "array.sh"))
        answers: dict[str, str | JobError] = {}
        for place, run in enumerate(runs):
            task = place // self.spec.pack
            job = _Job(token, place, task, f"{number}_{task}", time.monotonic(), run.claims_made())
            self.jobs[run.path] = job
            answers[run.name] = self._PREFIX + job.id
        return answers

    def _cancel(self, runs: Sequence[RunFolder], *, waiting: bool) -> None:
        """Cancel the jobs of runs; each again only after a look at the queue."""
        now = time.monotonic()
        jobs = sorted({self.jobs[run.path].id for run in runs if run.path in self.jobs})
        due = [job for job in jobs if now - self._asked.get(f"{waiting} {job}", -float("inf")) >= self.spec.poll_s]
        if due:
            commands.cancel(due, waiting=waiting)
            self._asked |= dict.fromkeys((f"{waiting} {job}" for job in due), now)

    def _room(self) -> int | None:
        """Number of further jobs that may be at work at the same time; None for any."""
        limit = _jobs_at_once(self.spec)
        return None if limit is None else limit - len({job.id for job in self.jobs.values()})

    def _probe(self) -> None:
        """Have a node read a file of the study's folder, once, before anything is submitted."""
        if self._probed:
            return
        marker, content = self.folder / f"marker-{os.getpid()}", secrets.token_hex(8)
        make_folder(self.folder)
        write_atomic(marker, content.encode())
        wanted = {"partition": self.spec.partition, "account": self.spec.account, "qos": self.spec.qos}
        look = 'if [ "$(cat "$0" 2> /dev/null)" = "$1" ]; then echo seen; else echo "not seen by $(hostname)"; fi'
        try:
            result = commands.ask(
                *("srun", f"--immediate={self.spec.probe_s}", "--ntasks=1", "--time=1", "--job-name=addnorm-probe"),
                *(f"--{name}={value}" for name, value in wanted.items() if value is not None),
                *("bash", "-c", look, str(marker.absolute()), content),
            )
        finally:
            remove(marker)
        # No answer, because no node was free in time, is not held against the folder: each job looks again before it
        # trains.
        if "not seen by" in result.stdout:
            raise InputError(
                f"executor slurm: expected a folder that every node sees, got {self.work.folder.absolute()}, which is "
                f"{result.stdout.strip()}. Choose one on the cluster's file system with --out."
            )
        self._probed = True


def _array(spec: Slurm, work: Work, folder: Path, *, tasks: int, at_once: int | None) -> str:
    """The script of an array of so many jobs; at most `at_once` of them work at the same time, None for any."""
    cpus = work.cores if spec.cpus is None else spec.cpus
    options = {
        "array": f"0-{tasks - 1}" + (f"%{at_once}" if at_once is not None else ""),
        "nodes": "1",
        "ntasks": str(spec.pack),
        "cpus-per-task": str(cpus),
        "gres": f"gpu:{spec.gpus}" if spec.gpus else None,
        "mem": spec.memory,
        "partition": spec.partition,
        "account": spec.account,
        "qos": spec.qos,
        "time": spec.time_limit,
        "signal": f"TERM@{spec.notice_s}",
    }
    return array_script(
        options,
        spec.options,
        folder=folder,
        study=work.folder,
        pack=spec.pack,
        cpus=cpus,
        environment=work.environment(),
        setup=spec.setup,
    )


def _names(path: Path) -> list[str]:
    """Names of the runs of an array; none if its file was removed."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _jobs_at_once(spec: Slurm) -> int | None:
    return None if spec.at_once is None else max(1, spec.at_once // spec.pack)


def _chunks(jobs: int, at_once: int | None, largest: int) -> list[tuple[int, int | None]]:
    """Number of jobs of each array, and how many of them may be at work; what there is no room for is left out."""
    sizes = [min(largest, jobs - first) for first in range(0, jobs, largest)]
    if at_once is None:
        return [(size, None) for size in sizes]
    # Slurm's limit (`%3`) holds within one array, so the limit of the study is shared out among its arrays. Arrays
    # beyond the limit could only get none; their runs are submitted when others have ended.
    count = min(len(sizes), at_once)
    return [(size, at_once // count + (place < at_once % count)) for place, size in enumerate(sizes[:count])]


def _require_one_run(spec: Slurm, work: Work) -> None:
    """Refuse a run on several devices in a job that has other runs."""
    if work.devices > 1 and spec.pack > 1:
        raise InputError(
            f"executor.pack: expected 1 for runs of {work.devices} devices each, got {spec.pack}. Set training.devices to 1, "
            "or leave out pack."
        )


def _seconds(limit: str) -> int:
    """Seconds of a time limit: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""
    match = _TIME.fullmatch(limit)
    if match is None:
        return 0
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is None and len(numbers) < 3:  # without days, a limit of one or two numbers begins with minutes
        numbers = [0, *numbers]
    hours, minutes, seconds = (*numbers, 0, 0)[:3]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
