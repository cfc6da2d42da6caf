"""The rules of operations, by kind. Importing this package registers them all."""

from addnorm.symmetry.actions.rules import arithmetic, attention, einsum, linear, norms, pointwise, shapes

__all__ = ["arithmetic", "attention", "einsum", "linear", "norms", "pointwise", "shapes"]
