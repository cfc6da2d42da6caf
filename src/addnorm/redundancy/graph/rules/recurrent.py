"""Rules for fused recurrent layers, whose two bias vectors enter each gate as a sum."""

from collections.abc import Sequence

import torch

from addnorm.redundancy.graph.reshaping import selected
from addnorm.redundancy.graph.rule import Call, rule, values_in
from addnorm.redundancy.graph.shift import add
from addnorm.redundancy.graph.value import Output, Value


@rule("lstm", "rnn_tanh", "rnn_relu")
def summed_biases(call: Call, *args: object, **kwargs: object) -> list[Output]:
    """Gate = W x + U h + b + c depends only on b + c."""
    _pairs(call, args, kwargs, split=None)
    return call.all_unmoved()


@rule("gru")
def gru(call: Call, *args: object, **kwargs: object) -> list[Output]:
    """The reset and update gates depend on b + c; the new state depends on b + r (U h + c), so both must vanish there."""
    _pairs(call, args, kwargs, split=2)
    return call.all_unmoved()


@rule("lstm_cell", "rnn_tanh_cell", "rnn_relu_cell")
def cell(call: Call, value: Value, *args: object) -> list[Output]:
    """One step of the same: it depends only on the sum of its two vectors."""
    return _cell(call, (value, *args), split=None)


@rule("gru_cell")
def gru_cell(call: Call, value: Value, *args: object) -> list[Output]:
    """One step of a GRU, see `gru`."""
    return _cell(call, (value, *args), split=2)


def _cell(call: Call, args: tuple[object, ...], split: int | None) -> list[Output]:
    """A cell takes weights and vectors as single arguments after the input and the state."""
    _pairs(call, (args[0], args[1], list(args[2:])), {}, split)
    return call.all_unmoved()


def _pairs(call: Call, args: Sequence[object], kwargs: dict[str, object], split: int | None) -> None:
    everything = values_in([list(args), kwargs])
    weights = [value for value in values_in(list(args)[2:3]) if value]
    vectors = [value for value in weights if len(value.shape) == 1]
    call.demand_unchanged(*(value for value in everything if not any(value is vector for vector in vectors)))
    for first, second in zip(vectors[::2], vectors[1::2], strict=False):
        size = first.shape[0]
        together = torch.arange(size if split is None else split * (size // 3))
        a, b = selected(first.shift, 0, together), selected(second.shift, 0, together)
        call.demand_zero(add(a, b, a.shape))
        if split is not None:
            apart = torch.arange(len(together), size)
            call.demand_zero(selected(first.shift, 0, apart))
            call.demand_zero(selected(second.shift, 0, apart))
