"""Rules for dropout, and for tensors that take only their shape from another one."""

from addnorm.redundancy.graph.rule import Call, rule
from addnorm.redundancy.graph.value import Output, Value


@rule("dropout", "dropout_", "feature_dropout", "alpha_dropout", "native_dropout", always=True)
def dropout(call: Call, value: Value, p: float, train: bool | None) -> list[Output]:
    """In evaluation it is the identity. In training m (x + s) shifts by m s with a random mask m, so nothing may shift,
    and the sums are lost."""
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
    """The operation reads a shape, not numbers."""
    return call.unmoved()
