"""Models that others wrote, in the plan of a study: what they are, and that measures of our models' parts do not apply."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from addnorm.catalogue import ROOMS
from addnorm.reporting.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A model that others wrote."""

    kind: str
    """Kind of its spec, `checkpoint` or `python`."""
    name: str
    """Folder of the checkpoint, or file and function."""


def foreign_in(spec: Mapping[str, Any]) -> Foreign | None:
    """The model that others wrote in a run's spec; None for one of this library."""
    model = spec.get("model")
    kind = model.get("kind") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or kind not in ROOMS["foreign"].kinds():
        return None
    return Foreign(kind=str(kind), name=str(model.get(kind, "")))  # the field that names it has the name of its kind


def is_foreign(snapshot: Snapshot, variant: str | None) -> bool:
    """True for a variant whose model others wrote."""
    return variant in snapshot.variants and foreign_in(snapshot.spec(str(variant))) is not None
