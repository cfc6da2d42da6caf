"""What each variant costs, counted once and kept beside the plan in `costs.json`, for whatever shows a study later.

Counting takes torch and the model's code; a page that shows the numbers takes neither. They follow from the plan alone,
so they are no part of it and of its hash.

    {"variants": {NAME: {"parameters", "flops_per_token", "peak_bytes"} or {"reason"}}}
"""

from pathlib import Path
from typing import Any

from addnorm.store import write_json
from addnorm.study.definition import Study
from addnorm.supervision.plan import count

NAME = "costs.json"


def keep_costs(study: Study, out: Path) -> None:
    """Count every variant's costs and write them, unless that is done. The study's models must have their vocabulary.

    Raises:
        DiskFull, JobError: the file cannot be written.
    """
    if not (out / NAME).exists():
        write_json(out / NAME, {"variants": {name: _cost(study, name) for name in study.variants}})


def _cost(study: Study, variant: str) -> dict[str, Any]:
    training = study.training
    try:
        found = count(study.variants[variant], training)
    except (RuntimeError, TypeError, ValueError) as error:  # a plugin may not bear a device without numbers
        return {"reason": f"{type(error).__name__}: {error}"}
    return {
        "parameters": found.parameters,
        "flops_per_token": found.flops / (training.batch * training.seq),
        "peak_bytes": found.peak_bytes,
    }
