"""The rules of operations, by kind. Importing this package registers them all."""

from addnorm.symmetry.actions.rules import (
    arithmetic,
    attention,
    concatenation,
    convolution,
    einsum,
    linear,
    norms,
    pointwise,
    routing,
    shapes,
)

__all__ = [
    "arithmetic",
    "attention",
    "concatenation",
    "convolution",
    "einsum",
    "linear",
    "norms",
    "pointwise",
    "routing",
    "shapes",
]
