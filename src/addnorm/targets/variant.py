"""The model of a study's variant, before it is trained: how many of its bias scalars cannot matter."""

from typing import Any

from addnorm.model.spec import ModelSpec
from addnorm.redundancy import audit
from addnorm.redundancy.execution.tracked_parameters import track_parameters
from addnorm.targets.run import some_tokens


def audit_variant(spec: ModelSpec) -> dict[str, Any]:
    """What the static method finds at the model's real size, in evaluation mode; nothing is trained and no method judges it.

    Returns:
        `size` (bias scalars), `joint_null` (how many of them can be given up together) and `redundant` (the names of those
        parameters that cannot matter alone).

    Raises:
        InputError: the model cannot be audited.
        AddnormError: the model does not export.
    """
    model = spec.build().eval()
    tokens = some_tokens(model)
    if not track_parameters(model, tokens).entries:
        return {"size": 0, "joint_null": 0, "redundant": []}
    found = audit(model, tokens, methods="static")
    redundant = [finding.parameter for finding in found.findings if finding.verdict == "redundant"]
    return {"size": found.size, "joint_null": found.joint_null, "redundant": redundant}
