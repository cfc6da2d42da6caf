"""Table of the redundant bias scalars of a study's variants."""

from collections.abc import Mapping
from typing import Any

from addnorm.cli._text import aligned


def redundant_biases(audits: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the audits of variants as a table, with the reason where a variant could not be audited.

    Args:
        audits: result of `audit_variant`, or a `reason`, by variant.
    """
    from addnorm.reporting.audit.table import merged_names

    if all(audit.get("size") == 0 for audit in audits.values()):
        return "No variant has a bias or a norm's shift, so none is redundant."
    rows = [("variant", "bias scalars", "can go", "cannot matter alone")]
    rows += [
        (name, "-", "-", str(audit["reason"]))
        if "reason" in audit
        else (name, str(audit["size"]), str(audit["joint_null"]), ", ".join(merged_names(audit["redundant"])) or "-")
        for name, audit in audits.items()
    ]
    method = "By the static method alone; `addnorm audit` of one run gives the reasons and checks them numerically."
    return f"{aligned(rows, right='lrr')}\n{method}"
