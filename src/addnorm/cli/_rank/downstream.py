"""Text of `addnorm rank --as downstream`: scores of items, with the interval beside the unpaired one."""

from collections.abc import Mapping
from textwrap import fill
from typing import Any

from addnorm.reporting.formats.table import Column, ResultTable, at

_METHODS = {"mcnemar": "items (McNemar)", "items": "items", "items and seeds": "items × seeds"}


def text(content: Mapping[str, Any], width: int) -> str:
    """The answers as a table.

    Args:
        content: `Downstream.to_json()`.
        width: columns of the page.
    """
    confidence = f"{100 * content['confidence']:g} %"
    together = "" if content["family"] == 1 else f", all {content['family']} together"
    of = {row["about"] for row in content["rows"]}
    about = (
        f"Differences from {content['reference']} over items"
        f"{' and seeds' if 'ways to train' in of else ''} ({confidence} intervals{together})."
    )
    if "checkpoints" in of:
        about += " Without several seeds of both, an answer is about these checkpoints, not about ways to train."
    columns = [
        Column("task", side="l"),
        Column("metric", side="l"),
        Column("variant", side="l"),
        Column("mean", form=_digits),
        Column("reference_mean", content["reference"], form=_digits),
        Column("difference", value=at("comparison", "difference"), form=lambda value: f"{value:+.4f}"),
        Column("interval", value=at("comparison", "interval"), form=_ends),
        Column("verdict", side="l"),
        Column("items", value=at("comparison", "items")),
        Column("documents", value=at("comparison", "documents")),
        Column("seeds", value=at("comparison", "seeds"), form=lambda seeds: "+".join(map(str, seeds))),
        Column("method", "over", value=at("comparison", "method"), form=_METHODS.__getitem__, side="l"),
        Column("unpaired_z", "unpaired z", value=at("comparison", "unpaired_z"), form=_ends),
    ]
    if all(row["task"] == "" for row in content["rows"]):
        columns = columns[1:]
    lines = [fill(about, width), "", ResultTable(columns, content["rows"]).text(width).rstrip("\n")]
    lines += [""] if content["warnings"] else []
    lines += [fill(f"! {warning}", width, subsequent_indent="  ") for warning in content["warnings"]]
    return "\n".join(lines)


def _digits(value: float) -> str:
    return f"{value:.4f}"


def _ends(interval: tuple[float, float]) -> str:
    return f"[{interval[0]:+.4f}, {interval[1]:+.4f}]"
