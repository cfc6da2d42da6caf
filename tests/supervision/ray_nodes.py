"""A real Ray cluster on this machine, whose nodes have GPUs by name alone."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

_MEMORY = 80 << 20
"""Bytes of a node's object store, about the least that Ray accepts; runs put nothing there."""


class RayNodes:
    """A head and a second node, with four cores and one GPU each. This process is no driver of it."""

    def __init__(self) -> None:
        try:
            from ray.cluster_utils import Cluster
        except ImportError as error:
            pytest.skip(f"no Ray to test with: {error}; install it with: pip install 'addnorm[ray]'")
        self._size = {"num_cpus": 4, "num_gpus": 1, "object_store_memory": _MEMORY}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args={**self._size, "include_dashboard": False})
        self.address: str = self._cluster.address
        self._session = self._cluster.head_node.get_session_dir_path()
        self._second = self._cluster.add_node(**self._size)

    def remove_second(self) -> None:
        """Kill -9 the second node's daemon, upon which Ray's processes there end."""
        self._cluster.remove_node(self._second, allow_graceful=False)

    def add_second(self) -> None:
        """Start another node in the place of the one that died."""
        self._second = self._cluster.add_node(**self._size)

    def is_on_second(self, actor: int) -> bool:
        """True for an actor's process on the second node."""
        return self._second.plasma_store_socket_name in " ".join(_words(_parent(actor)))

    def ask(self, program: str) -> list[str]:
        """Lines that a program prints in a process of its own, which is connected to the cluster."""
        start = f"import ray; ray.init(address={self.address!r}, log_to_driver=False, logging_level='ERROR')\n"
        command = [sys.executable, "-c", start + program]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout.splitlines()

    def stop(self) -> None:
        """End every process of the cluster, and remove what it wrote."""
        self._cluster.shutdown()
        shutil.rmtree(self._session, ignore_errors=True)


@contextmanager
def ray_nodes() -> Iterator[RayNodes]:
    """The cluster during the block."""
    nodes = RayNodes()
    try:
        yield nodes
    finally:
        nodes.stop()


def commands(run: Path) -> list[int]:
    """Process ids of the living worker commands of a run, whose parents are its actors."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        words = _words(int(process.name))
        if words[-1:] == [str(run)] and any(word.endswith("warm_jobs.py") for word in words):
            found.append(int(process.name))
    return found


def actor_of(command: int) -> int:
    """Process id of the actor that started a worker command."""
    return _parent(command)


def strike(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process, if it is alive."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _words(pid: int) -> list[str]:
    """The command line of a process; empty after its end."""
    with suppress(OSError):
        return [word.decode(errors="replace") for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]
    return []
