"""From a learned number to the coefficient that the model uses because of it."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from addnorm.catalogue import room
from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.study.encoding import encode
from addnorm.training.effective import effective_of_values

_NAME = re.compile(r"(.+)\[(.*)\]")


def position_of(name: str, layer: int | None) -> dict[str, Any]:
    """Parameter, layer and index of an entry called `scores.log_a.3[1]`.

    Raises:
        InputError: that is no entry's name.
    """
    matched = _NAME.fullmatch(name)
    if matched is None:
        raise InputError(f"the record of learned scalars is damaged: {name!r} is no entry's name.")
    index = tuple(int(part) for part in matched[2].split(",") if part.strip())
    return {"parameter": matched[1], "layer": layer, "index": index}


def coefficients(
    model: ModelSpec, names: Sequence[str], values: Float64[np.ndarray, " scalar"]
) -> dict[int, tuple[int | None, float]]:
    """For every entry its layer and the coefficient that the model uses because of it.

    An entry of a mechanism that does not say is its own coefficient, and its layer is the one that it is a parameter of.
    """
    by_place: dict[int, tuple[int | None, float]] = {}
    for place, (layer, coefficient) in enumerate(effective_of_values(model, names, values)):
        if coefficient is None:
            in_layer = re.match(r"layers\.(\d+)\.", names[place])
            by_place[place] = (int(in_layer[1]) if in_layer else None, float(values[place]))
        else:
            by_place[place] = (layer, coefficient)
    return by_place


def mechanism(model: ModelSpec) -> str:
    """What the model's scalars belong to, in words."""
    return f"residual {model.residual.kind}, scores {model.scores.kind}"


def formula(model: ModelSpec) -> str:
    """The formulas of those mechanisms that are true of this model, as their docstrings give them."""
    spec = encode(model)
    kinds = {"residual": model.residual.kind, "scores": model.scores.kind}
    return "\n".join(
        room(name).doc(kind).formula_in(spec) for name, kind in kinds.items() if kind not in ("add", "own")
    )
