"""Costs that were counted before training: `costs.json` in the study's folder."""

from typing import Any

from addnorm.reporting.reading.study_files import content_of
from addnorm.reporting.snapshot import Snapshot
from addnorm.store.study import COSTS


def counted_costs(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """Numbers by variant and name: `parameters`, `flops_per_token`, `peak_bytes`.

    Empty for a study of an earlier version, or one that was not made by `addnorm run`.
    """
    variants = content_of(snapshot, COSTS).get("variants")
    if not isinstance(variants, dict):
        return {}
    return {
        name: {key: value for key, value in of.items() if isinstance(value, int | float)}
        for name, of in variants.items()
        if isinstance(of, dict)
    }
