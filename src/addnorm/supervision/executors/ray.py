"""Workers as actors of Ray: one for each run, detached and with a name, on whichever node has room.

Why: it serves pools of machines without Slurm, and fractions of a GPU. Ray has at most one actor of a name, keeps it when the
supervisor dies, and starts it again elsewhere when its node dies. An actor starts the worker command and ends with it. The
supervisor starts what is neither done nor known to Ray, and may be stopped and started again on any machine of the cluster.

    actor DIGEST/RUN in namespace addnorm    the digest is that of the study's folder
    OUT/ray/RUN.code                         exit code of the run's last worker
"""

import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from addnorm.errors import InputError, JobError
from addnorm.fields import require
from addnorm.store import RunFolder
from addnorm.store.files import make_folder, remove
from addnorm.supervision.executors import ExecutorSpec, Work, WorkerState
from addnorm.supervision.executors._adopting import AdoptingExecutor, recorded_code, request_stops
from addnorm.supervision.executors._ray_cluster import NAMESPACE, RESTARTS, Node, RayCluster, missing_module
from addnorm.training.exit_code import ExitCode

_OWN = ("ADDNORM_HOST", "ADDNORM_WORKER")
"""Variables that say something about one process or host, and are not passed on."""


@dataclass(frozen=True, kw_only=True)
class Ray(ExecutorSpec):
    """One actor for each run. `at_once` limits the runs at work; null leaves it to Ray."""

    address: str | None = None
    """Cluster, `HOST:PORT` of its head node. `local` starts one of this machine alone, which ends with the command; null takes
    that of RAY_ADDRESS, else the one that was started on this machine, else a new local one."""
    gpus: float = 0.0
    """GPUs of each run; 0.25 lets four runs share one. With 0, runs are trained on CPU cores."""
    cpus: float | None = None
    """Cores for each run; if null, `training.threads` for each of its `training.devices`."""
    environment: tuple[str, ...] = ()
    """Names of variables of this process that workers get too; those that begin with ADDNORM_ always."""
    probe_s: float = 30.0
    """Seconds to wait until the nodes say whether they see the study's folder; one that does not answer is not heard."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "gpus", self.gpus >= 0, "a number of at least 0")
        require(self, "gpus", self.gpus <= 1 or self.gpus == int(self.gpus), "a fraction of one GPU, or a whole number")
        require(self, "cpus", self.cpus is None or self.cpus >= 0, "a number of at least 0, or null")
        require(self, "probe_s", self.probe_s > 0, "a positive number of seconds")

    @property
    def trains_on_gpus(self) -> bool:
        return self.gpus > 0


class RayExecutor(AdoptingExecutor[int]):
    """Actors of Ray. Its jobs are the numbers of claims of their runs before the actor was started; -1 if that is not known.

    Args:
        spec: the settings.
        work: the study's folder, threads and worker command.
        cluster: the connection.
    """

    _PREFIX: ClassVar = "ray:"

    def __init__(self, spec: Ray, work: Work, cluster: RayCluster) -> None:
        super().__init__()
        self.spec, self.work, self.cluster = spec, work, cluster
        self.folder = work.folder / "ray"
        self._names: set[str] | None = None
        self._trouble: str | None = None
        self._probed = False

    @classmethod
    def of(cls, spec: Ray, work: Work) -> "RayExecutor":
        obstacle = cls.obstacle()
        if obstacle is not None:
            raise InputError(f"executor ray: expected Ray, got {obstacle}.")
        work.require_gpus(spec.gpus, "run")
        cluster = RayCluster(spec.address)
        nodes = cluster.nodes()
        if not _able(nodes, _resources(spec, work)):
            raise InputError(
                f"executor: expected at most what one node of the cluster has, got {_amounts(_resources(spec, work))} for each "
                f"run; the nodes have {'; '.join(sorted({_amounts(node.resources) for node in nodes}))}. Lower executor.gpus, "
                "executor.cpus or training.devices."
            )
        return cls(spec, work, cluster)

    @classmethod
    def obstacle(cls) -> str | None:
        return "no module ray; install it with: pip install 'addnorm[ray]'" if missing_module() else None

    @classmethod
    def script(cls, spec: Ray, work: Work, runs: int) -> str:
        limit = f", of which {spec.at_once} work at the same time" if spec.at_once is not None else ""
        return (
            f"# {runs} detached actors{limit}, on Ray at {spec.address or 'the default address'}.\n"
            f"# Each: {_amounts(_resources(spec, work))}; started again {RESTARTS} times by Ray itself. Its name, in namespace "
            f"{NAMESPACE}:\n"
            f"# {_actor_name(work.folder, 'RUN')}\n"
            f"{_assignments(_environment(spec, work, 'RUN'))} \\\n"
            f"    {shlex.join(work.command)} {shlex.quote(str(work.folder.absolute()))}/RUN\n"
        )

    def start(self, runs: Sequence[RunFolder]) -> dict[str, str | JobError]:
        room = len(runs) if self.spec.at_once is None else self.spec.at_once - len(self.jobs)
        if room < 1:
            return {}
        self._probe()
        answers: dict[str, str | JobError] = {}
        for run in runs[:room]:
            try:
                answers[run.name] = self._submit(run)
            except JobError as error:
                if not self.jobs:
                    raise  # nothing of this study is known to Ray, and the reason is the user's to read
                answers[run.name] = error
        return answers

    def _find_jobs(self, runs: Mapping[str, RunFolder]) -> dict[str, str]:
        names, ids = self._living(), {}
        for run in runs.values():
            # The name is made from the folder and the run, so nothing has to be remembered. Ray has at most one living
            # actor of a name, which is what keeps two supervisors from starting two.
            if self._name(run) in names:
                # An actor that was found is taken to have begun if its run is held. Compared with the claims at its
                # end, -1 then never says that its worker never began.
                self.jobs[run.path] = -1 if run.is_held() else run.claims_made()
                ids[run.name] = self._PREFIX + self._name(run)
        return ids

    def _look(self, runs: Sequence[RunFolder]) -> None:
        if any(run.path in self.jobs for run in runs):
            self._living()

    def _stop(self, runs: Sequence[RunFolder]) -> None:
        request_stops(runs)
        for run in runs:
            if not run.is_held():
                self.cluster.kill(self._name(run))  # waits for a node, or has done nothing yet

    def _kill(self, runs: Sequence[RunFolder]) -> None:
        for run in runs:
            self.cluster.kill(self._name(run))

    def _state(self, run: RunFolder, job: int) -> WorkerState:
        # The files first, as for every executor. An actor that Ray still lists may be waiting, starting, or on its way
        # out; the claim alone says that a worker trains.
        held = run.is_held()  # before the ending, which a worker writes before it lets go
        if run.ending() is not None and not held:
            return WorkerState(
                phase="ended", note="its actor is over", code=recorded_code(self._code_path(run), run, job)
            )
        if held:
            return WorkerState(phase="working", note=self._trouble or "")
        if self._name(run) in (self._names or ()):
            needs = _amounts(_resources(self.spec, self.work))
            return WorkerState(
                phase="waiting", note=self._trouble or f"for a node with {needs} free, or about to begin"
            )
        note = "its actor has ended"
        if run.claims_made() == job:
            note += f" before its worker began, see {run.log_path}"
        return WorkerState(phase="ended", note=note, code=recorded_code(self._code_path(run), run, job))

    def _submit(self, run: RunFolder) -> str:
        name = self._name(run)
        run.retry()  # an old BLOCKED would be taken for that of a worker that crashes at once
        remove(self._code_path(run))
        claims = run.claims_made()
        self.cluster.create(
            name,
            _resources(self.spec, self.work),
            command=(*self.work.command, str(run.path.absolute())),
            folder=str(run.path.absolute()),
            code=str(self._code_path(run).absolute()),
            cwd=os.getcwd(),
            environment=_environment(self.spec, self.work, self._PREFIX + name),
            stopped=int(ExitCode.STOPPED),
        )
        self.jobs[run.path] = claims
        return self._PREFIX + name

    def _living(self) -> set[str]:
        """Names of the living actors; those of the last answer while Ray does not answer."""
        try:
            self._names, self._trouble = self.cluster.names(), None
        except JobError as error:
            if self._names is None:
                raise
            self._trouble = str(error)
        return self._names

    def _probe(self) -> None:
        """Have every node that may train a run read a file of the study's folder, once, before anything is started."""
        if self._probed:
            return
        make_folder(self.folder)
        nodes = _able(self.cluster.nodes(), _resources(self.spec, self.work))
        reason = self.cluster.blind(nodes, self.folder.absolute(), self.work.command[0], self.spec.probe_s)
        if reason is not None:
            raise InputError(
                f"executor ray: expected a study's folder and a Python that every node sees, got: {reason}. Choose a folder "
                "on a shared file system with --out, and install addnorm at the same place on every node."
            )
        self._probed = True

    def _name(self, run: RunFolder) -> str:
        return _actor_name(self.work.folder, run.name)

    def _code_path(self, run: RunFolder) -> Path:
        return self.folder / f"{run.name}.code"


def _actor_name(folder: Path, run: str) -> str:
    """Name of a run's actor: nodes see the folder at one path, so every supervisor makes the same name."""
    return f"{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]}/{run}"


def _resources(spec: Ray, work: Work) -> dict[str, float]:
    return {"CPU": float(work.cores) if spec.cpus is None else spec.cpus, "GPU": spec.gpus}


def _able(nodes: Sequence[Node], needed: Mapping[str, float]) -> list[Node]:
    """The nodes that have what a run needs, if nothing else were at work there."""
    return [node for node in nodes if all(node.resources.get(name, 0) >= amount for name, amount in needed.items())]


def _amounts(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {resources.get(name, 0):g}" for name in ("CPU", "GPU"))


def _environment(spec: Ray, work: Work, worker: str) -> dict[str, str]:
    """Variables of a run's worker, in addition to those of its node."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in spec.environment or (name.startswith("ADDNORM_") and name not in _OWN)
    }
    return {
        **passed,
        **work.environment(),
        "ADDNORM_WORKER": worker,
        **({} if spec.gpus else {"CUDA_VISIBLE_DEVICES": ""}),
    }


def _assignments(environment: Mapping[str, str]) -> str:
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
