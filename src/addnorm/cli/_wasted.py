"""How many bias scalars of each variant cannot matter, as a table: for a study before it trains, and for one that is there."""

from collections.abc import Mapping
from typing import Any

from addnorm.cli._output import aligned


def wasted(audits: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of `audit_variant`'s findings, by variant; with the reason where a variant could not be audited."""
    from addnorm.reporting.audit.table import merged_names

    if all(found.get("size") == 0 for found in audits.values()):
        return "No variant has a bias or a norm's shift, so none is wasted."
    rows = [("variant", "bias scalars", "can go", "cannot matter alone")]
    rows += [
        (name, "-", "-", str(found["reason"]))
        if "reason" in found
        else (name, str(found["size"]), str(found["joint_null"]), ", ".join(merged_names(found["redundant"])) or "-")
        for name, found in audits.items()
    ]
    said = "By the static method alone; `addnorm audit` of one model says why, and judges it by moving them."
    return f"{aligned(rows, right='lrr')}\n{said}"
