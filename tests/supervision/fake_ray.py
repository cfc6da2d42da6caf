"""A Ray that is a few lines of this file, whose actors the test moves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from addnorm.errors import JobError
from addnorm.supervision.executors._ray_cluster import Node


@dataclass
class FakeRay:
    """Actors, which the test moves."""

    actors: dict[str, dict[str, Any]] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    away: bool = False
    missing: str | None = None
    not_installed: bool = False
    ends: bool = False
    """Actors are over as soon as they are created."""
    asked: list[str] = field(default_factory=list)
    """Nodes that were asked what they see."""

    def nodes(self) -> list[Node]:
        return [
            Node(id="a", host="one", resources={"CPU": 8.0, "GPU": 1.0}),
            Node(id="b", host="two", resources={"CPU": 2.0}),
        ]

    def names(self) -> set[str]:
        if self.away:
            raise JobError("Ray failed: no answer")
        return set(self.actors)

    def create(self, name: str, resources: Mapping[str, float], **task: Any) -> None:
        if self.away:
            raise JobError("Ray failed: no answer")
        self.created.append(name.rpartition("/")[2])
        if not self.ends:
            self.actors[name] = {"resources": dict(resources), **task}

    def kill(self, name: str) -> None:
        self.killed.append(name.rpartition("/")[2])
        self.actors.pop(name, None)

    def blind(self, nodes: Sequence[Node], folder: Path, program: str, timeout_s: float) -> str | None:
        self.asked = [node.id for node in nodes]
        return self.missing
