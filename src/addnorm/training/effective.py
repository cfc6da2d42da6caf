"""Beside each learned scalar, its layer and the coefficient that the model uses because of it.

Only the mechanism's own code knows either: an entry of a list of parameters need not stand at the layer of its place. The
worker writes both down while the model is there, so that they can be read without it; `addnorm explain` asks the same
function of mechanisms that hold recorded values.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import nn

from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec

Effective = tuple[int | None, float | None]
"""0-based layer and coefficient; None where the entry belongs to no layer, or to a mechanism that does not say."""


def effective(mechanisms: Mapping[str, nn.Module], names: Sequence[str]) -> list[Effective]:
    """The layer and the coefficient of each entry.

    Args:
        mechanisms: the model's, by their path in it.
        names: the entries' names, `scores.log_a.3[1]`, those of one parameter in row-major order.
    """
    by_parameter: dict[str, list[tuple[int, float]]] = {}
    for path, mechanism in mechanisms.items():
        coefficients: Callable[[], dict[str, Any]] | None = getattr(mechanism, "coefficients", None)
        if coefficients is not None:
            for name, (layers, leads_to) in coefficients().items():
                values = leads_to.double().flatten().tolist()
                by_parameter[f"{path}.{name}"] = list(zip(layers, values, strict=True))
    entries: list[Effective] = []
    seen: dict[str, int] = {}
    for name in names:
        owner = name.partition("[")[0]
        place = seen.get(owner, 0)
        seen[owner] = place + 1
        known = by_parameter.get(owner, [])
        entries.append(known[place] if place < len(known) else (None, None))
    return entries


def effective_of_values(
    model: ModelSpec, names: Sequence[str], values: Float64[np.ndarray, " scalar"]
) -> list[Effective]:
    """What `effective` says of a model whose learned scalars have the given values, in float64.

    Args:
        model: the model that the values are of; only the mechanisms that it has one of are built.
        names: the entries' names, those of one parameter in row-major order.
        values: the entries' values, in the order of the names.

    Raises:
        InputError: the names are those of another model.
    """
    mechanisms: dict[str, nn.Module] = {
        "residual": model.build_residual().double(),
        "scores": model.build_scores().double(),
    }
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
                f"the record of learned scalars is of another model: expected {expected} entries of {owner}, got "
                f"{len(its_values)}. Read it beside the spec that it was made with."
            )
        with torch.no_grad():
            parameters[owner].copy_(torch.tensor(its_values, dtype=torch.float64).reshape(parameters[owner].shape))
    return effective(mechanisms, names)
