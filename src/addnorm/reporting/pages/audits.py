"""What `addnorm audit DIR` found of each model: bias scalars that cannot matter, as DIR/audit.json keeps them."""

from dataclasses import dataclass
from typing import Any

from addnorm.reporting.pages.kept import UNREADABLE, kept
from addnorm.reporting.pages.snapshot import Snapshot
from addnorm.reporting.tables.audit import merged_names

NAME = "audit.json"


@dataclass(frozen=True, kw_only=True)
class Wasted:
    """One model."""

    variant: str
    size: int
    """Bias scalars."""
    joint_null: int
    """How many of them can be given up together."""
    redundant: tuple[str, ...]
    """Parameters that cannot matter alone, layers merged."""
    reason: str | None
    """Why the model could not be audited, in English."""
    note: Any
    """The same with its code and values; None where the file has none."""


def audits(snapshot: Snapshot) -> list[Wasted]:
    """The models that were audited, in the study's order; none where the file belongs to another plan."""
    content = kept(snapshot, NAME)
    if content.get("plan_hash") != snapshot.plan["plan_hash"]:
        return []
    try:
        return [
            Wasted(
                variant=name,
                size=int(of.get("size", 0)),
                joint_null=int(of.get("joint_null", 0)),
                redundant=tuple(merged_names([str(parameter) for parameter in of.get("redundant", [])])),
                reason=None if "reason" not in of else str(of["reason"]),
                note=of.get("note"),
            )
            for name in snapshot.variants
            if (of := content["variants"].get(name)) is not None
        ]
    except UNREADABLE:
        return []
