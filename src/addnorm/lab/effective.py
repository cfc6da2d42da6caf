"""Beside each learned scalar, its layer and the coefficient that the model uses because of it, for whoever shows them later.

Only the mechanism's own code knows either: an entry of a list of parameters need not stand at the layer of its place. What is
written down while the model is there can be read without it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

Effective = tuple[int | None, float | None]
"""0-based layer and coefficient; None where the entry belongs to no layer, or to a mechanism that does not say."""


def effective(mechanisms: Mapping[str, nn.Module], names: Sequence[str]) -> list[Effective]:
    """The layer and the coefficient of each entry.

    Args:
        mechanisms: the model's, by their path in it.
        names: the entries' names, `scores.log_a.3[1]`, those of one parameter in row-major order.
    """
    told: dict[str, list[tuple[int, float]]] = {}
    for path, mechanism in mechanisms.items():
        coefficients: Callable[[], dict[str, Any]] | None = getattr(mechanism, "coefficients", None)
        if coefficients is not None:
            for name, (layers, leads_to) in coefficients().items():
                values = leads_to.double().flatten().tolist()
                told[f"{path}.{name}"] = list(zip(layers, values, strict=True))
    found: list[Effective] = []
    seen: dict[str, int] = {}
    for name in names:
        owner = name.partition("[")[0]
        place = seen.get(owner, 0)
        seen[owner] = place + 1
        known = told.get(owner, [])
        found.append(known[place] if place < len(known) else (None, None))
    return found
