"""Dropout, and tensors that take only a shape from another."""

from addnorm.redundancy.graph.rule import Call, rule
from addnorm.redundancy.graph.value import Output, Value


@rule("dropout", "dropout_", "feature_dropout", "alpha_dropout", "native_dropout", always=True)
def dropout(call: Call, value: Value, p: float, train: bool | None) -> list[Output]:
    """In evaluation the identity. In training m (x + s) moves by m s with a random mask m: nothing may move, and sums
    are lost.
    """
    outs = call.all_unmoved()
    if train is False or p == 0.0:
        outs[0] = Output(value.shift, value.data_shifts, value.sums, value.masked, value.plane)
    else:
        call.demand_unchanged(value)
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
def like(call: Call, *_: object, **__: object) -> Output:
    """Reads a shape, no number."""
    return call.unmoved()
