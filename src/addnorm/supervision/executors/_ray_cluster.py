"""A connection to a Ray cluster, and the questions and orders that the executor has for it."""

import importlib.util
import logging
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from addnorm.errors import InputError, JobError
from addnorm.store.files import disk_error

NAMESPACE = "addnorm"
RESTARTS = 3
"""Times that Ray starts an actor again by itself, after its node died or it was killed."""
_CONNECT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node that is alive."""

    id: str
    host: str
    resources: Mapping[str, float]
    """Amounts by name, such as CPU and GPU, whether they are in use or not."""


def missing_module() -> bool:
    """True if Ray is not installed. Imports nothing."""
    return importlib.util.find_spec("ray") is None


class RayCluster:
    """A connection to a cluster, or to one of this machine alone that ends with this process.

    Every method raises a JobError where the cluster refuses or does not answer.

    Args:
        address: of the cluster, `HOST:PORT`; null for that of RAY_ADDRESS, else the one that was started on this machine
            with `ray start`, else a new one.

    Raises:
        InputError: there is no cluster at the address, or it refuses this version of Ray or Python.
    """

    def __init__(self, address: str | None) -> None:
        address = address or os.environ.get("RAY_ADDRESS") or None
        if address not in (None, "auto", "local"):
            _require_reachable(address)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray  # not at the top of the file: an extra, and an import of a second

        self._ray = ray
        if ray.is_initialized():  # by the program that calls
            self._require_at(address)
            return
        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InputError(
                f"executor.address: expected a Ray cluster that this process can join, got {address!r}: {_line(error)}"
            ) from error

    def _require_at(self, address: str | None) -> None:
        own = self._ray.get_runtime_context().gcs_address
        if address not in (None, "auto", "local") and _resolved(address) != _resolved(own):
            raise InputError(
                f"executor.address: expected {own!r}, which this program has joined, got {address!r}. Leave it out, or call "
                "ray.shutdown() before."
            )

    def nodes(self) -> list[Node]:
        """The nodes that are alive."""
        return [
            Node(id=node["NodeID"], host=node["NodeManagerHostname"], resources=node["Resources"])
            for node in self._asked(self._ray.nodes)
            if node["Alive"]
        ]

    def names(self) -> set[str]:
        """Names of the actors that wait, work, or are about to be started again."""
        actors = self._asked(self._ray.util.list_named_actors, all_namespaces=True)
        return {entry["name"] for entry in actors if entry["namespace"] == NAMESPACE}

    def create(self, name: str, resources: Mapping[str, float], **task: Any) -> None:
        """Have a run trained by an actor of that name, unless there is one."""
        from ray import cloudpickle

        from addnorm.supervision.executors import _ray_actor

        # By value: processes of Ray then need not find addnorm, and do not import torch.
        cloudpickle.register_pickle_by_value(_ray_actor)
        # Detached: an actor outlives the supervisor. `get_if_exists`: two supervisors that create one at the same
        # moment get one. Restarts are Ray's own, for the time in which no supervisor is there to start the run again.
        options = {
            "name": name,
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "get_if_exists": True,
            "max_restarts": RESTARTS,
            "num_cpus": resources.get("CPU", 0),
            "num_gpus": resources.get("GPU", 0),
        }
        actor = self._ray.remote(_ray_actor.RunActor).options(**options)
        self._asked(actor.remote, _ray_actor.Task(actor=name, namespace=NAMESPACE, **task))

    def kill(self, name: str) -> None:
        """End an actor and its worker, whether it has begun or not. Nothing happens if there is none."""
        with suppress(ValueError):  # it has ended meanwhile
            self._asked(lambda: self._ray.kill(self._ray.get_actor(name, namespace=NAMESPACE)))

    def blind(self, nodes: Sequence[Node], folder: Path, program: str, timeout_s: float) -> str | None:
        """The first of the nodes' reasons why workers cannot begin there: they do not see a folder, or a program.

        Args:
            nodes: the nodes to ask.
            folder: an existing folder; a file is made in it for a moment.
            program: path of a program that workers need.
            timeout_s: a node that does not answer within this time is not heard.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        content = secrets.token_hex(8)
        marker = folder / f"marker-{content}"

        def look() -> str | None:
            try:
                with open(marker) as file:
                    seen = file.read() == content
            except OSError:
                seen = False
            return (
                f"the folder {folder}" if not seen else f"the program {program}" if not os.access(program, 1) else None
            )

        try:
            marker.write_text(content)
        except OSError as error:
            raise disk_error(error, marker) from error
        try:
            # Without a core, so that busy nodes answer too, and on exactly that node: moved elsewhere, the answer would
            # be another's.
            task = self._ray.remote(num_cpus=0, max_retries=0)(look)
            asked = {
                task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)).remote(): node
                for node in nodes
            }
            answered, _ = self._asked(self._ray.wait, list(asked), num_returns=len(asked), timeout=timeout_s)
            for answer in answered:
                with suppress(JobError):  # the node has died meanwhile
                    missing = self._asked(self._ray.get, answer)
                    if missing is not None:
                        return f"node {asked[answer].host} does not see {missing}"
            return None
        finally:
            marker.unlink(missing_ok=True)

    def _asked(self, question: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return question(*arguments, **named)
        except (self._ray.exceptions.RayError, ConnectionError, TimeoutError, RuntimeError) as error:
            raise JobError(f"Ray failed: {_line(error)}") from error


def _require_reachable(address: str) -> None:
    """Refuse an address where nothing listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise InputError(
            f"executor.address: expected HOST:PORT of a cluster's head node, got {address!r}. `ray status` tells it there."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"executor.address: expected a Ray cluster, got {address!r}, where nothing answers ({error}). Start one there "
            "with `ray start --head`, or leave the address out for this machine alone."
        ) from error


def _resolved(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    with suppress(OSError):
        host = socket.gethostbyname(host)
    return host, port


def _line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
