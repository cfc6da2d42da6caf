"""The rules of operations, by kind. Importing this package registers them all."""

from addnorm.symmetry.actions.rules import (
    attention,
    concatenation,
    convolution,
    einsum,
    linear,
    norms,
    pointwise,
    products,
    recurrent,
    routing,
    shapes,
    sums,
)

__all__ = [
    "attention",
    "concatenation",
    "convolution",
    "einsum",
    "linear",
    "norms",
    "pointwise",
    "products",
    "recurrent",
    "routing",
    "shapes",
    "sums",
]
