"""The layer of each learned scalar, and the coefficient that the model computes from it.

Both are known to the mechanism's code only: the position of an entry in a list of parameters need not be its layer. The
worker records them while the model exists, so that pages can show them without it. `addnorm explain` calls the same function
with mechanisms that have recorded values.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import nn

from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec

LayerCoefficient = tuple[int | None, float | None]
"""0-based layer and coefficient; None if the entry belongs to no layer, or its mechanism has no method `coefficients`."""


def coefficients_of(mechanisms: Mapping[str, nn.Module], names: Sequence[str]) -> list[LayerCoefficient]:
    """The layer and the coefficient of each entry.

    Args:
        mechanisms: the model's mechanisms by their path in it.
        names: the entries' names, such as `scores.log_a.3[1]`, those of one parameter in row-major order.
    """
    by_parameter: dict[str, list[tuple[int, float]]] = {}
    for path, mechanism in mechanisms.items():
        coefficients: Callable[[], dict[str, Any]] | None = getattr(mechanism, "coefficients", None)
        if coefficients is not None:
            for name, (layers, values) in coefficients().items():
                flat = values.double().flatten().tolist()
                by_parameter[f"{path}.{name}"] = list(zip(layers, flat, strict=True))
    entries: list[LayerCoefficient] = []
    seen: dict[str, int] = {}
    for name in names:
        owner = name.partition("[")[0]
        # By position among the entries of one parameter: names are recorded in row-major order, which is the order of a
        # mechanism's `coefficients`.
        index = seen.get(owner, 0)
        seen[owner] = index + 1
        known = by_parameter.get(owner, [])
        entries.append(known[index] if index < len(known) else (None, None))
    return entries


def coefficients_of_values(
    model: ModelSpec, names: Sequence[str], values: Float64[np.ndarray, " scalar"]
) -> list[LayerCoefficient]:
    """The layers and coefficients of a model whose learned scalars have the given values, in float64.

    Args:
        model: the model's spec; only its residual, scores, values and sinks are built.
        names: the entries' names, those of one parameter in row-major order.
        values: the entries' values, in the order of the names.

    Raises:
        InputError: the names belong to another model.
    """
    built = {
        "residual": model.build_residual(),
        "scores": model.build_scores(),
        "values": model.build_values(),
        "sink": model.build_sinks(),
    }
    mechanisms: dict[str, nn.Module] = {path: part.double() for path, part in built.items() if part is not None}
    recorded: dict[str, list[float]] = {}
    for name, value in zip(names, values.tolist(), strict=True):
        recorded.setdefault(name.partition("[")[0], []).append(value)
    parameters = {
        f"{path}.{name}": parameter
        for path, mechanism in mechanisms.items()
        for name, parameter in mechanism.named_parameters()
    }
    for owner, its_values in recorded.items():
        if owner.partition(".")[0] not in mechanisms:
            continue
        expected = parameters[owner].numel() if owner in parameters else 0
        if len(its_values) != expected:
            raise InputError(
                f"record of learned scalars: expected {expected} entries of {owner}, got "
                f"{len(its_values)}. Read the record with the spec of its own run."
            )
        with torch.no_grad():
            parameters[owner].copy_(torch.tensor(its_values, dtype=torch.float64).reshape(parameters[owner].shape))
    return coefficients_of(mechanisms, names)
