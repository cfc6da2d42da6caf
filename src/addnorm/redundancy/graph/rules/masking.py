"""Rules for masking: entries that are overwritten or dropped at random, entries that a softmax does not see, and tensors that
take only their shape from another one."""

from dataclasses import replace
from math import inf

import torch

from addnorm.redundancy.execution.operation_names import MASKED
from addnorm.redundancy.graph.read_entries import with_copies
from addnorm.redundancy.graph.reshaping import selected
from addnorm.redundancy.graph.rule import OpCall, rule
from addnorm.redundancy.graph.rules.arithmetic import HIDDEN, Number, broadcast_data_shifts, nothing
from addnorm.redundancy.graph.shift import add as plus
from addnorm.redundancy.graph.shift import broadcast, times, zero_shift
from addnorm.redundancy.graph.value import Mask, NodeValue, Output


@rule("where", always=True, masks=True)
def where(call: OpCall, condition: NodeValue, first: NodeValue | Number, second: NodeValue | Number) -> Output:
    """Entries filled with at most -1e4 have no weight in a softmax, so their shift has no effect.

    Otherwise, if the condition is known, each entry has the shift of its operand; if it is data, both shifts must be equal.
    """
    return _where(call, condition, first, second)


def _where(call: OpCall, condition: NodeValue, first: NodeValue | Number, second: NodeValue | Number) -> Output:
    call.demand_unchanged(condition)
    first, second = _number(first), _number(second)
    dims = len(call.shape)
    if condition.fact == "nowhere":
        call.assume(HIDDEN)
        return Output(
            broadcast(second.shift, call.shape),
            broadcast_data_shifts(second.data_shifts, dims, call.shape, second.shape),
        )
    sides = ((second, first, condition.name), (first, second, condition.name and f"not {condition.name}"))
    for kept, filled, chosen_by in sides:
        # One side holds numbers that a softmax ignores. Its entries may then shift as the other side does, although
        # they do not: nobody sees them. This needs a reader that ignores them, which `Mask` makes later rules check.
        before = kept.masked
        if before is not None and not before.hides and chosen_by and before.condition == chosen_by:
            before = None  # the same entries are overwritten
        if hides(filled) and not filled.moves and (before is None or before.hides):
            kept = with_copies(kept, _visible(condition, filled is first, kept.shape))
            data_shifts = broadcast_data_shifts(kept.data_shifts, dims, call.shape, kept.shape)
            if kept.moves:
                call.assume(HIDDEN)
            infinite = filled.known is not None and bool((filled.known == -inf).all())
            mask = (
                Mask(hides=True, infinite=infinite, condition=chosen_by)
                if before is None
                else replace(before, infinite=infinite and before.infinite, condition="")
            )
            return Output(broadcast(kept.shift, call.shape), data_shifts, masked=mask)
    # Entries that an earlier mask filled, and that this one may leave, do not shift as `shift` says.
    if any(_uncovered(kept, chosen_by, condition) for kept, _, chosen_by in sides):
        return nothing(call, first, second)
    for kept, filled, chosen_by in sides:
        if kept.moves and not filled.moves and condition.known is None and chosen_by:
            # An operation that reads the filled entries demands that nothing shifts; one that overwrites them does not.
            mask = Mask(hides=False, condition=chosen_by)
            return Output(
                broadcast(kept.shift, call.shape),
                broadcast_data_shifts(kept.data_shifts, dims, call.shape, kept.shape),
                masked=mask,
            )
    first, second = call.without_data_shifts(first), call.without_data_shifts(second)
    if condition.known is not None:
        # A known condition selects the map as it selects the numbers. One that is data may select either side in any
        # entry, so both must shift alike.
        chosen = condition.known.to(torch.float64)
        a, b = times(first.shift, chosen, call.shape), times(second.shift, 1 - chosen, call.shape)
        return Output(plus(a, b, call.shape))
    call.demand_zero(plus(first.shift, second.shift, call.shape, -1.0))
    return Output(broadcast(call.current(first.shift), call.shape))


def _visible(condition: NodeValue, hidden_where: bool, shape: tuple[int, ...]) -> dict[int, torch.Tensor]:
    """Entries per axis that a known condition does not fill throughout; the others shift as any entry that is seen, since
    nothing reads them."""
    if condition.known is None or len(condition.shape) > len(shape):
        return {}
    filled = condition.known.to(torch.bool) == hidden_where
    filled = filled.reshape((1,) * (len(shape) - filled.dim()) + tuple(filled.shape))
    visible = {}
    for axis in range(len(shape)):
        whole = filled.all(dim=tuple(at for at in range(len(shape)) if at != axis))
        if filled.shape[axis] == shape[axis] > 1 and bool(whole.any()) and not bool(whole.all()):
            visible[axis] = ~whole
    return visible


def _uncovered(kept: NodeValue, chosen_by: str, condition: NodeValue) -> bool:
    """True if a value has masked entries that this filling may not overwrite."""
    mask = kept.masked
    return mask is not None and not (
        mask.infinite and chosen_by == condition.name and condition.fact == f"infinite {kept.name}"
    )


def _number(value: NodeValue | Number) -> NodeValue:
    if isinstance(value, NodeValue):
        return value
    return NodeValue((), zero_shift(()), torch.tensor(float(value), dtype=torch.float64))


def hides(value: NodeValue) -> bool:
    return value.known is not None and value.known.numel() > 0 and bool((value.known <= MASKED).all())


@rule("masked_fill", always=True, masks=True)
def masked_fill(call: OpCall, value: NodeValue, mask: NodeValue, fill: NodeValue | Number) -> Output:
    """where(mask, fill, value)."""
    return _where(call, mask, fill, value)


@rule("minimum", "clamp_max", always=True, masks=True)
def minimum(call: OpCall, value: NodeValue, bound: NodeValue | Number) -> Output:
    """A bound that is minus infinity in some places and infinity in the others fills the former, as where does."""
    return _below(call, value, bound)


def _below(call: OpCall, value: NodeValue, bound: NodeValue | Number) -> Output:
    if isinstance(bound, NodeValue) and not bound.moves and bound.known is not None and bool(bound.known.isinf().all()):
        return _where(call, NodeValue(bound.shape, bound.shift, bound.known == -inf), -inf, value)
    return nothing(call, value, bound)


@rule("clamp", always=True, masks=True)
def clamp(
    call: OpCall, value: NodeValue, lower: NodeValue | Number | None = None, upper: NodeValue | Number | None = None
) -> Output:
    """minimum(value, upper), if there is no lower bound."""
    return nothing(call, value, lower, upper) if lower is not None or upper is None else _below(call, value, upper)


@rule("scatter", axial=True)
def scatter(
    call: OpCall, value: NodeValue, dim: int, index: NodeValue, source: NodeValue | Number, *_: object, **kwargs: object
) -> Output:
    """Entries written between hidden ones: where they land depends on the index alone, so a shift that is constant along the
    axis is the same at every place."""
    call.demand_unchanged(index)
    axis = dim % len(value.shape)
    others = [at for at in range(len(value.shape)) if at != axis]
    plain = isinstance(source, NodeValue) and source.masked is None and not kwargs and source.shape == index.shape
    if (
        not isinstance(source, NodeValue)
        or not plain
        or value.moves
        or not hides(value)
        or any(source.shape[at] != value.shape[at] for at in others)
    ):
        return nothing(call, value, source)
    source = call.demand_constant_value(source, [axis])
    if source.moves:
        call.assume(HIDDEN)
    # All entries of the row shift by one number, so that it does not matter which of them was written where.
    one = selected(source.shift, axis, torch.tensor([0]))
    infinite = value.known is not None and bool((value.known == -inf).all())
    return Output(broadcast(one, call.shape), source.data_shifts, masked=Mask(hides=True, infinite=infinite))


@rule("dropout", "dropout_", "feature_dropout", "alpha_dropout", "native_dropout", always=True, masks=True)
def dropout(call: OpCall, value: NodeValue, p: float, train: bool | None) -> list[Output]:
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
    masks=True,
)
def like(call: OpCall, *_: object, **__: object) -> Output:
    """The operation reads a shape, not numbers."""
    return call.unmoved()


@rule("fill", masks=True)
def fill(call: OpCall, value: NodeValue, number: NodeValue | Number) -> Output:
    """All entries become one number, whatever they were."""
    call.demand_unchanged(number if isinstance(number, NodeValue) else None)
    return call.unmoved()
