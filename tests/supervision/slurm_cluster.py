"""A real Slurm with two nodes on this machine, from Debian's packages unpacked into a folder: nothing is installed, no
daemon of the system takes part, and any user may start it.

Nodes are two daemons. What a node's death does is done by killing the daemon and every process under it.
"""

import fcntl
import os
import resource
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins"),
    *("libmunge2", "libhwloc15", "liblua5.1-0"),
)
NODES = ("n1", "n2")
CPUS = 4
_CONF = """
ClusterName=t
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller_port}
SlurmdParameters=config_overrides
SlurmctldParameters=node_reg_mem_percent=0
SlurmdTimeout=6
MessageTimeout=30
KillWait=2
PropagateResourceLimits=NONE
InactiveLimit=0
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/log/controller.log
SlurmdLogFile={folder}/log/%n.log
PluginDir={plugins}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0
JobRequeue=1
MpiDefault=none
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MinJobAge=300
{nodes}
PartitionName=low Nodes=n1,n2 Default=YES MaxTime=60 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=5
PartitionName=high Nodes=n1,n2 MaxTime=60 State=UP PriorityTier=10 PreemptMode=OFF
"""


class Cluster:
    """Two nodes and their controller.

    Args:
        packages: folder with the packages.
        folder: an empty folder for everything that the cluster writes.
    """

    def __init__(self, packages: Path, folder: Path) -> None:
        self.folder = folder
        for name in ("log", "state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir(parents=True)
        root = folder / "root"
        for package in sorted(packages.glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
        (library,) = {path.parent.parent for path in root.glob("usr/lib/*/slurm-wlm/auth_none.so")}
        self.daemons = root / "usr/sbin"
        host = socket.gethostname().partition(".")[0]
        ports = _free_ports(3)
        nodes = (
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} State=UNKNOWN"
            for node, port in zip(NODES, ports[1:], strict=True)
        )
        conf = folder / "slurm.conf"
        values = {"folder": folder, "plugins": library / "slurm-wlm", "host": host, "controller_port": ports[0]}
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        conf.write_text(_CONF.format(**values, user=user, nodes="\n".join(nodes)))
        self.environment = {
            "LD_LIBRARY_PATH": f"{library}:{library / 'slurm-wlm'}",
            "PATH": f"{root / 'usr/bin'}:{self.daemons}:{os.environ['PATH']}",
            "SLURM_CONF": str(conf),
        }
        self._processes = {"controller": self._begin("slurmctld-wlm", "-D", "-c")}
        for node in NODES:
            self.start_node(node)
        self.await_nodes(2)

    def start_node(self, node: str) -> None:
        """Start a node's daemon."""
        stepd = str(self.daemons / "slurmstepd-wlm")
        self._processes[node] = self._begin("slurmd-wlm", "-D", "-N", node, "-d", stepd)

    def kill_node(self, node: str) -> None:
        """Kill -9 a node's daemon and every process that it started, and let the controller know, as SlurmdTimeout would."""
        self._end(node)
        _kill(self._under(f"SLURMD_NODENAME={node}"))
        self.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=died")

    def await_nodes(self, count: int) -> None:
        """Wait until so many nodes take jobs."""
        for _ in range(300):
            dead = [name for name, process in self._processes.items() if process.poll() is not None]
            if dead:
                log = (self.folder / "log" / f"{dead[0]}.log").read_text(errors="replace")
                raise AssertionError(f"{dead[0]} ended: {log[-2000:]}")
            told = self.ask("sinfo", "-h", "-p", "low", "-N", "-t", "idle,mixed,allocated", "-o", "%N")
            if len(told.split()) == count:
                return
            time.sleep(0.1)
        raise AssertionError(f"expected {count} nodes, got {told!r}")

    def ask(self, *command: str) -> str:
        """Output of one of Slurm's commands, also of one that fails."""
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | self.environment
        ).stdout

    def stop(self) -> None:
        """End every process of the cluster."""
        for name in ("controller", *NODES):
            self._end(name)
        _kill(self._under(f"SLURM_CONF={self.folder / 'slurm.conf'}"))

    def _begin(self, daemon: str, *options: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [str(self.daemons / daemon), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | self.environment,
            preexec_fn=_without_core_dumps,  # Debian's slurmstepd may fault when its job is taken from it
        )

    def _end(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def _under(self, mark: str) -> list[int]:
        """Processes of the cluster's jobs that have a variable in their environment, after the daemons above them."""
        conf = f"SLURM_CONF={self.folder / 'slurm.conf'}".encode()
        tasks, daemons = [], set()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                values = (process / "environ").read_bytes().split(b"\0")
                if conf in values and mark.encode() in values and int(process.name) != os.getpid():
                    tasks.append(int(process.name))
                    parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                    if (Path("/proc") / str(parent) / "cmdline").read_bytes().startswith(b"slurmstepd"):
                        daemons.add(parent)  # it does not name its node
        return [*daemons, *tasks]


def _without_core_dumps() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def packages(folder: Path) -> Path:
    """Folder with Slurm's packages, downloaded once into `folder`; skips the test where they cannot be had."""
    with open(folder / "lock", "w") as lock:  # another process of the suite may be at it
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _packages(folder)


def _packages(folder: Path) -> Path:
    if len(list(folder.glob("*.deb"))) >= len(PACKAGES):
        return folder
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            pytest.skip(f"no Slurm to test with: {tool} is not here, which unpacks Debian's packages")
    result = _download(folder, ())
    if result.returncode != 0:  # no lists of packages, or old ones; those of this folder need no rights
        own = ("-o", f"Dir::State::lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'cache'}")
        (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", *own, "update"], cwd=folder, capture_output=True, timeout=120, check=False)
        result = _download(folder, own)
    if result.returncode != 0:
        pytest.skip(f"no Slurm to test with: {result.stderr.strip().splitlines()[-1]}")
    return folder


def _download(folder: Path, options: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["apt-get", *options, "download", *PACKAGES],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
