"""Fused recurrent layers: their two bias vectors enter each gate as one sum."""

from collections.abc import Sequence

import torch

from addnorm.redundancy.graph.reshaping import picked
from addnorm.redundancy.graph.rule import Site, rule, tensors
from addnorm.redundancy.graph.shift import add
from addnorm.redundancy.graph.value import Out, Value


@rule("lstm", "rnn_tanh", "rnn_relu")
def summed_biases(site: Site, *args: object, **kwargs: object) -> list[Out]:
    """Gate = W x + U h + b + c: only b + c counts."""
    _pairs(site, args, kwargs, split=None)
    return site.all_still()


@rule("gru")
def gru(site: Site, *args: object, **kwargs: object) -> list[Out]:
    """The reset and update gates see b + c; the new state sees b + r (U h + c), where both count."""
    _pairs(site, args, kwargs, split=2)
    return site.all_still()


@rule("lstm_cell", "rnn_tanh_cell", "rnn_relu_cell")
def cell(site: Site, value: Value, *args: object) -> list[Out]:
    """One step of the same: only the sum of its two vectors counts."""
    return _cell(site, (value, *args), split=None)


@rule("gru_cell")
def gru_cell(site: Site, value: Value, *args: object) -> list[Out]:
    """One step of a GRU."""
    return _cell(site, (value, *args), split=2)


def _cell(site: Site, args: tuple[object, ...], split: int | None) -> list[Out]:
    """The weights and the vectors are single arguments, after the input and the state."""
    _pairs(site, (args[0], args[1], list(args[2:])), {}, split)
    return site.all_still()


def _pairs(site: Site, args: Sequence[object], kwargs: dict[str, object], split: int | None) -> None:
    everything = tensors([list(args), kwargs])
    weights = [value for value in tensors(list(args)[2:3]) if value]
    vectors = [value for value in weights if len(value.shape) == 1]
    site.unchanged(*(value for value in everything if not any(value is vector for vector in vectors)))
    for first, second in zip(vectors[::2], vectors[1::2], strict=False):
        size = first.shape[0]
        together = torch.arange(size if split is None else split * (size // 3))
        a, b = picked(first.shift, 0, together), picked(second.shift, 0, together)
        site.vanish(add(a, b, a.shape))
        if split is not None:
            apart = torch.arange(len(together), size)
            site.vanish(picked(first.shift, 0, apart))
            site.vanish(picked(second.shift, 0, apart))
