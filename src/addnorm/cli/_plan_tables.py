"""Tables of what is known of a study before training: what fits on a cluster, and which biases are redundant."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from addnorm.cli._text import aligned, duration, quantity

if TYPE_CHECKING:
    from addnorm.supervision.cluster_estimate import Cluster, ClusterEstimate, VariantOnCluster


def cluster_table(estimate: "ClusterEstimate", cluster: "Cluster") -> str:
    """Format the estimate, with a remedy for every variant that does not fit."""
    names = (
        "variant",
        "parameters",
        "FLOPs",
        "memory",
        "runs per device",
        "time",
        "storage",
        "sent per step",
        "by a ring",
    )
    rows = [names]
    rows += [
        (
            variant.variant,
            quantity(variant.parameters),
            quantity(variant.flops),
            f"{quantity(variant.peak_bytes)}B",
            str(variant.runs_per_device) if variant.runs_per_device else "does not fit",
            duration(variant.seconds),
            f"{quantity(variant.storage_bytes)}B",
            f"{quantity(variant.tree_bytes)}B",
            f"{quantity(variant.ring_bytes)}B",
        )
        for variant in estimate.variants
    ]
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
    parts = [head, aligned(rows, right="lrrrrrrrr"), *map(_not_fitting, _too_large(estimate)), *_network(estimate), end]
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
    rows = [("variant", "bias scalars", "can go", "cannot matter alone")]
    rows += [
        (name, "-", "-", str(audit["reason"]))
        if "reason" in audit
        else (name, str(audit["size"]), str(audit["joint_null"]), ", ".join(merged_names(audit["redundant"])) or "-")
        for name, audit in audits.items()
    ]
    method = "By the static method alone; `addnorm audit` of one run gives the reasons and checks them numerically."
    return f"{aligned(rows, right='lrr')}\n{method}"
