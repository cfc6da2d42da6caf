"""Tables of what is known of a study before training: what fits on a cluster, and which biases are redundant."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from addnorm.cli._text import duration, on_screen, quantity
from addnorm.reporting.formats.table import Column, ResultTable
from addnorm.words import point_name, spoken, translated

if TYPE_CHECKING:
    from addnorm.supervision.cluster_estimate import Cluster, ClusterEstimate, VariantOnCluster


def in_bytes(number: float | int) -> str:
    """Format a number of bytes: `51.7 kB`."""
    return f"{quantity(number)}B"


def cluster_table(estimate: "ClusterEstimate", cluster: "Cluster") -> str:
    """Format the estimate, with a remedy for every variant that does not fit."""
    t = spoken()
    columns = (
        Column("variant", t("head.variant"), point_name, side="l"),
        Column("parameters", t("head.parameters"), quantity),
        Column("flops", "FLOPs", quantity),
        Column("peak_bytes", t("head.memory"), in_bytes),
        Column(
            "runs_per_device",
            t("head.runs_per_device"),
            lambda runs: str(runs) if runs else t("estimate.does_not_fit"),
        ),
        Column("seconds", t("head.time"), duration),
        Column("storage_bytes", t("head.storage"), in_bytes),
        Column("tree_bytes", t("head.sent_per_step"), in_bytes),
        Column("ring_bytes", t("head.by_a_ring"), in_bytes),
    )
    speed, memory = quantity(cluster.flops_per_second), quantity(cluster.memory_bytes)
    head = t(
        "estimate.on_cluster",
        study=estimate.study,
        runs=estimate.runs,
        devices=t("estimate.devices", count=cluster.gpus, speed=speed, memory=memory),
        at_once=min(estimate.runs, estimate.at_once),
    )
    storage = quantity(estimate.storage_bytes)
    end = t("estimate.cluster_total", time=duration(estimate.seconds), hours=estimate.device_hours, storage=storage)
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
        return spoken()("estimate.fits_nowhere", variant=variant.variant)
    return spoken()("estimate.fits_with", variant=variant.variant, remedy=translated(variant.remedy))


def _network(estimate: "ClusterEstimate") -> list[str]:
    sums = [variant for variant in estimate.variants if variant.tree_seconds]
    if not sums:
        return []
    longest = max(sums, key=lambda variant: variant.tree_seconds or 0.0)
    share = (longest.tree_seconds or 0.0) / longest.seconds
    return [spoken()("estimate.network", time=duration(longest.tree_seconds or 0.0), share=share)]


def redundant_biases(audits: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the audits of variants as a table, with the reason where a variant could not be audited.

    Args:
        audits: result of `audit_variant`, or a `reason`, by variant.
    """
    from addnorm.reporting.audit.table import merged_names

    t = spoken()
    if all(audit.get("size") == 0 for audit in audits.values()):
        return t("estimate.no_biases")
    columns = (
        Column("variant", t("head.variant"), point_name, side="l"),
        Column("size", t("head.bias_scalars")),
        Column("joint_null", t("head.can_go")),
        Column("redundant", t("head.cannot_matter"), side="l"),
    )
    rows = [
        {"variant": name, "size": None, "joint_null": None, "redundant": translated(audit["reason"])}
        if "reason" in audit
        else {"variant": name, **audit, "redundant": ", ".join(merged_names(audit["redundant"])) or "-"}
        for name, audit in audits.items()
    ]
    return f"{on_screen(ResultTable(columns, rows))}\n{t('estimate.audit_method')}"


def learned_numbers(counts: Mapping[str, Mapping[str, Any]]) -> str:
    """Say of each variant which learned numbers of its joints can matter; nothing if no joint has any.

    Args:
        counts: by variant and room, `numbers`, `unread` and `matter`; or a `reason` by variant.
    """
    t = spoken()
    parts = []
    for variant, rooms in counts.items():
        if "reason" in rooms:
            parts.append(t("estimate.not_counted", variant=variant, reason=translated(rooms["reason"])))
            continue
        for room, each in rooms.items():
            gauge = each["numbers"] - each["unread"] - each["matter"]
            numbers = {"numbers": each["numbers"], "matter": each["matter"], "gauge": gauge}
            counted = t("estimate.counted", variant=variant, room=room, **numbers)
            parts.append(counted + (t("estimate.unread", unread=each["unread"]) if each["unread"] else ""))
    if not parts:
        return ""
    return t("estimate.learned_numbers", counts=t("joint.semicolon").join(parts))
