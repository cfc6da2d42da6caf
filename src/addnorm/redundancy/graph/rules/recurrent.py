"""Rules for fused recurrent layers, whose two bias vectors enter each gate as a sum."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from addnorm.redundancy.graph.reshaping import selected
from addnorm.redundancy.graph.rule import OpCall, rule
from addnorm.redundancy.graph.shift import add, times_matrix, zero_shift
from addnorm.redundancy.graph.value import NodeValue, Output, values_in


@rule("lstm", "rnn_tanh", "rnn_relu")
def summed_biases(call: OpCall, *args: object, **kwargs: object) -> list[Output]:
    """Gate = W x + U h + b + c depends only on b + c."""
    _pairs(call, args, kwargs, split=None)
    return call.all_unmoved()


@rule("gru")
def gru(call: OpCall, *args: object, **kwargs: object) -> list[Output]:
    """The reset and update gates depend on b + c; the new state depends on b + r (U h + c), so both must vanish there."""
    _pairs(call, args, kwargs, split=2)
    return call.all_unmoved()


@rule("lstm_cell", "rnn_tanh_cell", "rnn_relu_cell")
def cell(call: OpCall, value: NodeValue, *args: object) -> list[Output]:
    """One step of the same: it depends only on the sum of its two vectors."""
    return _cell(call, (value, *args), split=None)


@rule("gru_cell")
def gru_cell(call: OpCall, value: NodeValue, *args: object) -> list[Output]:
    """One step of a GRU, see `gru`."""
    return _cell(call, (value, *args), split=2)


def _cell(call: OpCall, args: tuple[object, ...], split: int | None) -> list[Output]:
    """A cell takes weights and vectors as single arguments after the input and the state. Its input enters the gates as
    W x + b, so a shift s of x counts as the shift W s of b."""
    value, weight, *rest = args[0], args[2], *args[3:]
    vectors = [each for each in rest[1:] if isinstance(each, NodeValue)]
    if (
        len(vectors) != 2
        or not isinstance(value, NodeValue)
        or not isinstance(weight, NodeValue)
        or weight.known is None
        or weight.moves
    ):
        _pairs(call, (args[0], args[1], list(args[2:])), {}, split)
        return call.all_unmoved()
    # A shift of the hidden state is not treated so: it also passes through the cell's own products with gates.
    through = times_matrix(value.shift, weight.known.to(torch.float64).T, (*value.shape[:-1], weight.shape[0]))
    first = replace(vectors[0], shape=through.shape, shift=add(through, vectors[0].shift, through.shape))
    _gates(call, first, vectors[1], split)
    still = replace(value, shift=zero_shift(value.shape))
    call.demand_unchanged(*values_in([still, args[1], weight, rest[0]]))
    return call.all_unmoved()


def _pairs(call: OpCall, args: Sequence[object], kwargs: dict[str, object], split: int | None) -> None:
    everything = values_in([list(args), kwargs])
    weights = [value for value in values_in(list(args)[2:3]) if value]
    vectors = [value for value in weights if len(value.shape) == 1]
    call.demand_unchanged(*(value for value in everything if not any(value is vector for vector in vectors)))
    for first, second in zip(vectors[::2], vectors[1::2], strict=False):
        _gates(call, first, second, split)


def _gates(call: OpCall, first: NodeValue, second: NodeValue, split: int | None) -> None:
    """Demand that the sums of two values of the gates vanish, and beyond `split` gates of three each of them."""
    first, second = call.without_data_shifts(first), call.without_data_shifts(second)
    size, axis = second.shape[0], len(first.shape) - 1
    # In the new state of a GRU, tanh(W x + b + r (U h + c)), r differs between entries and steps: b and c cannot
    # cancel.
    together = torch.arange(size if split is None else split * (size // 3))
    a, b = selected(first.shift, axis, together), selected(second.shift, 0, together)
    call.demand_zero(add(a, b, a.shape))
    if split is not None:
        apart = torch.arange(len(together), size)
        call.demand_zero(selected(first.shift, axis, apart))
        call.demand_zero(selected(second.shift, 0, apart))
