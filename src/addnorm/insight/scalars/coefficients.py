"""The coefficients that a model computes from its learned scalars."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from addnorm.catalogue import room
from addnorm.errors import InputError
from addnorm.model.spec import ModelSpec
from addnorm.study.encoding import encode
from addnorm.training.coefficients import coefficients_of_values

_NAME = re.compile(r"(.+)\[(.*)\]")


class Coefficient(NamedTuple):
    """The coefficient that a model computes from one scalar, and its layer."""

    layer: int | None
    value: float


def parameter_and_index(name: str) -> tuple[str, tuple[int, ...]]:
    """Split the recorded name `scores.log_a.3[1]` into parameter and index.

    Raises:
        InputError: the name has another form.
    """
    matched = _NAME.fullmatch(name)
    if matched is None:
        raise InputError(f"damaged record of learned scalars: expected a name such as scores.log_a.3[1], got {name!r}.")
    return matched[1], tuple(int(part) for part in matched[2].split(",") if part.strip())


def coefficients(
    model: ModelSpec, names: Sequence[str], values: Float64[np.ndarray, " scalar"]
) -> tuple[Coefficient, ...]:
    """Compute the coefficient of every scalar.

    A scalar of a mechanism without `effective` is its own coefficient, in the layer that owns the parameter.
    """
    computed = []
    for name, value, (layer, coefficient) in zip(
        names, values, coefficients_of_values(model, names, values), strict=True
    ):
        if coefficient is None:
            owner = re.match(r"layers\.(\d+)\.", name)
            computed.append(Coefficient(int(owner[1]) if owner else None, float(value)))
        else:
            computed.append(Coefficient(layer, coefficient))
    return tuple(computed)


def recorded_coefficients(
    recorded: Sequence[tuple[int | None, float | None]], values: Float64[np.ndarray, " scalar"]
) -> tuple[Coefficient, ...]:
    """The coefficients that a worker recorded while the model existed, for a model that its spec alone does not build.

    Args:
        recorded: layer and coefficient of each scalar; a scalar without a coefficient is its own.
        values: of the scalars.
    """
    return tuple(
        Coefficient(layer, float(value) if coefficient is None else coefficient)
        for (layer, coefficient), value in zip(recorded, values, strict=True)
    )


def mechanism(model: ModelSpec) -> str:
    """Name the mechanisms that own the model's scalars."""
    return ", ".join(f"{name} {kind}" for name, kind in _kinds(model).items())


def formula(model: ModelSpec) -> str:
    """Give the formulas of those mechanisms from their docstrings, reduced to the lines that hold for this model."""
    spec = encode(model)
    return "\n".join(
        room(name).doc(kind).formula_in(spec) for name, kind in _kinds(model).items() if kind not in ("add", "own")
    )


def _kinds(model: ModelSpec) -> dict[str, str]:
    """Kinds of the mechanisms; values are named only where they are not a layer's own."""
    kinds = {"residual": model.residual.kind, "scores": model.scores.kind}
    return kinds if model.values.kind == "own" else {**kinds, "values": model.values.kind}
