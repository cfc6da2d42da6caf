"""Dropout, and tensors that take only a shape from another."""

from addnorm.redundancy.graph.rule import Site, rule
from addnorm.redundancy.graph.value import Out, Value


@rule("dropout", "dropout_", "feature_dropout", "alpha_dropout", "native_dropout", always=True)
def dropout(site: Site, value: Value, p: float, train: bool | None) -> list[Out]:
    """In evaluation the identity. In training m (x + s) moves by m s with a random mask m: nothing may move, and sums
    are lost.
    """
    outs = site.all_still()
    if train is False or p == 0.0:
        outs[0] = Out(value.shift, value.loose, value.sums, value.masked, value.plane)
    else:
        site.unchanged(value)
    return outs


@rule(
    "zeros_like",
    "ones_like",
    "full_like",
    "empty_like",
    "rand_like",
    "randn_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "new_empty",
)
def like(site: Site, *_: object, **__: object) -> Out:
    """Reads a shape, no number."""
    return site.still()
