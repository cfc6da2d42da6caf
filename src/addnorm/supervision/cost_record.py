"""The counted cost of each variant in a study's folder, `costs.json`, for pages and reports.

Counting needs torch and the model's code; showing the numbers needs neither. The numbers follow from the plan, so they are
not part of it and not of its hash.

    {"variants": {NAME: {"parameters", "flops_per_token", "peak_bytes"} or {"reason"}}}
"""

from pathlib import Path
from typing import Any

from addnorm.store import write_json
from addnorm.store.study import COSTS
from addnorm.study.definition import Study
from addnorm.supervision.cost_estimate import step_cost


def record_costs(study: Study, out: Path) -> None:
    """Count the cost of every variant and write `costs.json`, unless the file is there already.

    Args:
        study: the study; its models have their vocabulary (see `fit_models`).
        out: the study's folder.

    Raises:
        DiskFull, JobError: the file cannot be written.
    """
    if not (out / COSTS).exists():
        write_json(out / COSTS, {"variants": {name: _cost(study, name) for name in study.variants}})


def _cost(study: Study, variant: str) -> dict[str, Any]:
    training = study.training_of(variant)
    try:
        step = step_cost(study.variants[variant], training)
    except (RuntimeError, TypeError, ValueError) as error:  # a plugin may not support the meta device
        return {"reason": f"{type(error).__name__}: {error}"}
    return {
        "parameters": step.parameters,
        "flops_per_token": step.flops / (training.batch * training.seq),
        "peak_bytes": step.peak_bytes,
    }
