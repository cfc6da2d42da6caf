"""The audit of a study's variant before it is trained: its redundant bias scalars."""

from typing import Any

from addnorm.model.spec import ModelSpec
from addnorm.redundancy import audit
from addnorm.redundancy.execution.tracked_parameters import track_parameters
from addnorm.targets.run import random_tokens


def audit_variant(spec: ModelSpec) -> dict[str, Any]:
    """Audit a variant's model at full size in evaluation mode, by the static method alone.

    Returns:
        `size` (number of bias scalars), `joint_null` (how many of them can be removed together) and `redundant` (names of the
        parameters that are redundant alone).

    Raises:
        InputError: the model cannot be audited.
        AddnormError: the model does not export.
    """
    model = spec.build().eval()
    tokens = random_tokens(model)
    if not track_parameters(model, tokens).entries:
        return {"size": 0, "joint_null": 0, "redundant": []}
    audited = audit(model, tokens, methods="static")
    redundant = [finding.parameter for finding in audited.findings if finding.verdict == "redundant"]
    return {"size": audited.size, "joint_null": audited.joint_null, "redundant": redundant}
