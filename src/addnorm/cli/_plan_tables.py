"""Tables of what is known of a study before training: what fits on a cluster, and which biases are redundant."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from addnorm.cli._text import duration, on_screen, quantity
from addnorm.reporting.formats.table import Column, ResultTable

if TYPE_CHECKING:
    from addnorm.supervision.cluster_estimate import Cluster, ClusterEstimate, VariantOnCluster


def in_bytes(number: float | int) -> str:
    """Format a number of bytes: `51.7 kB`."""
    return f"{quantity(number)}B"


def cluster_table(estimate: "ClusterEstimate", cluster: "Cluster") -> str:
    """Format the estimate, with a remedy for every variant that does not fit."""
    columns = (
        Column("variant", side="l"),
        Column("parameters", form=quantity),
        Column("flops", "FLOPs", quantity),
        Column("peak_bytes", "memory", in_bytes),
        Column("runs_per_device", "runs per device", lambda runs: str(runs) if runs else "does not fit"),
        Column("seconds", "time", duration),
        Column("storage_bytes", "storage", in_bytes),
        Column("tree_bytes", "sent per step", in_bytes),
        Column("ring_bytes", "by a ring", in_bytes),
    )
    devices = (
        f"{cluster.gpus} devices of {quantity(cluster.flops_per_second)}FLOP/s and {quantity(cluster.memory_bytes)}B"
    )
    head = (
        f"{estimate.study}: {estimate.runs} runs on {devices}, {min(estimate.runs, estimate.at_once)} at once. FLOPs, time and "
        "storage are those of one run."
    )
    end = (
        f"Altogether {duration(estimate.seconds)} of time, {estimate.device_hours:,.1f} device hours and "
        f"{quantity(estimate.storage_bytes)}B of storage, without evaluations, start-up and waiting in a queue."
    )
    parts = [
        head,
        on_screen(ResultTable(columns, estimate.variants)),
        *map(_not_fitting, _too_large(estimate)),
        *_network(estimate),
        end,
    ]
    return "\n\n".join(parts)


def _too_large(estimate: "ClusterEstimate") -> list["VariantOnCluster"]:
    return [variant for variant in estimate.variants if not variant.runs_per_device]


def _not_fitting(variant: "VariantOnCluster") -> str:
    if variant.remedy is None:
        return (
            f"{variant.variant} does not fit, nor would it with one sequence in each part of a batch: choose shorter "
            "sequences, a smaller model, or devices with more memory."
        )
    return f"{variant.variant} does not fit; it would with {variant.remedy}."


def _network(estimate: "ClusterEstimate") -> list[str]:
    sums = [variant for variant in estimate.variants if variant.tree_seconds]
    if not sums:
        return []
    longest = max(sums, key=lambda variant: variant.tree_seconds or 0.0)
    share = (longest.tree_seconds or 0.0) / longest.seconds
    return [f"Summing gradients adds up to {duration(longest.tree_seconds or 0.0)} to a run, {share:.0%} of its time."]


def redundant_biases(audits: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the audits of variants as a table, with the reason where a variant could not be audited.

    Args:
        audits: result of `audit_variant`, or a `reason`, by variant.
    """
    from addnorm.reporting.audit.table import merged_names

    if all(audit.get("size") == 0 for audit in audits.values()):
        return "No variant has a bias or a norm's shift, so none is redundant."
    columns = (
        Column("variant", side="l"),
        Column("size", "bias scalars"),
        Column("joint_null", "can go"),
        Column("redundant", "cannot matter alone", side="l"),
    )
    rows = [
        {"variant": name, "size": None, "joint_null": None, "redundant": audit["reason"]}
        if "reason" in audit
        else {"variant": name, **audit, "redundant": ", ".join(merged_names(audit["redundant"])) or "-"}
        for name, audit in audits.items()
    ]
    method = "By the static method alone; `addnorm audit` of one run gives the reasons and checks them numerically."
    return f"{on_screen(ResultTable(columns, rows))}\n{method}"


def learned_numbers(counts: Mapping[str, Mapping[str, Any]]) -> str:
    """Say of each variant which learned numbers of its joints can matter; nothing if no joint has any.

    Args:
        counts: by variant and room, `numbers`, `unread` and `matter`; or a `reason` by variant.
    """
    parts = []
    for variant, rooms in counts.items():
        if "reason" in rooms:
            parts.append(f"{variant}: not counted, {rooms['reason']}")
            continue
        for room, each in rooms.items():
            gauge = each["numbers"] - each["unread"] - each["matter"]
            unread = f", {each['unread']} unread" if each["unread"] else ""
            parts.append(
                f"{variant}'s {each['numbers']} of {room}: {each['matter']} identifiable, {gauge} a gauge{unread}"
            )
    if not parts:
        return ""
    return f"Learned numbers of joints, counted in models of small width: {'; '.join(parts)}."
