"""Settings of an executor, the base of every sibling in `addnorm.supervision.executors`.

They say where a study is trained, not what: they are not part of a run's identity, and a study that one executor began is
continued by any other.
"""

from dataclasses import dataclass

from addnorm.catalogue import Spec
from addnorm.fields import require


@dataclass(frozen=True, kw_only=True)
class ExecutorSpec(Spec):
    """Base of every executor's settings."""

    at_once: int | None = None
    """Largest number of runs trained at the same time; null for as many as there is room for. `--workers` sets it too."""

    def __post_init__(self) -> None:
        require(self, "at_once", self.at_once is None or self.at_once >= 1, "a whole number of at least 1, or null")

    @property
    def longest_attempt_s(self) -> float:
        """Seconds after which an attempt is stopped; infinite without a limit."""
        return float("inf")

    @property
    def trains_on_gpus(self) -> bool:
        """True if workers get GPUs that this machine may not have."""
        return False
