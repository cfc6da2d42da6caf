"""The rules of operations, by kind. Importing this package registers them all."""

from addnorm.symmetry.actions.rules import (
    arithmetic,
    attention,
    convolution,
    einsum,
    linear,
    norms,
    pointwise,
    routing,
    shapes,
)

__all__ = ["arithmetic", "attention", "convolution", "einsum", "linear", "norms", "pointwise", "routing", "shapes"]
