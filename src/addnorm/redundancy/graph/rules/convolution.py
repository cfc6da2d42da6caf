"""Rules for convolutions and pooling, on the full grid, because zero padding makes a constant shift vary at the border."""

from collections.abc import Sequence
from math import prod

import torch

from addnorm.redundancy.graph.reshaping import reshaped, selected
from addnorm.redundancy.graph.rule import OpCall, rule
from addnorm.redundancy.graph.rules.shapes import mapped_by_target
from addnorm.redundancy.graph.shift import (
    EPS,
    LARGEST_MAP,
    DenseTerm,
    Shift,
    Term,
    TooLarge,
    add,
    broadcast,
    reduce_equal,
    zero_shift,
)
from addnorm.redundancy.graph.value import NodeValue, Output


@rule(
    *("convolution", "_convolution", "conv1d", "conv2d", "conv3d"),
    *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
)
def convolution(
    call: OpCall, value: NodeValue, weight: NodeValue, bias: NodeValue | None = None, *args: object, **kwargs: object
) -> Output:
    """W * (x + s) + (b + t) = (W * x + b) + (W * s + t), with the kernel applied to the whole padded grid."""
    call.demand_unchanged(weight)
    value = call.without_data_shifts(value)
    if weight.known is None:
        call.demand_unchanged(value)
        shift = zero_shift(call.shape)
    else:
        if value.shift:
            call.assume("inputs have the example's size, because the effect of a convolution depends on the grid")
        shift = _convolved(call, value.shift, weight.known, args, kwargs)
    if bias is not None:
        bias = call.without_data_shifts(bias)
        axis = len(call.shape) - (len(weight.shape) - 1)
        shape = tuple(bias.shape[0] if at == axis else 1 for at in range(len(call.shape)))
        shift = add(shift, broadcast(reshaped(bias.shift, shape), call.shape), call.shape)
    return Output(shift)


def _convolved(
    call: OpCall, shift: Shift, weight: torch.Tensor, args: tuple[object, ...], kwargs: dict[str, object]
) -> Shift:
    terms: dict[int, Term] = {}
    weight = weight.to(torch.float64)
    batched = len(shift.shape) == weight.dim()
    gain = float(weight.norm())
    for block, given in shift.dense().items():
        batch = given.reduced[0] if batched else 1
        grid = shift.shape[1:] if batched else shift.shape
        count = len(given.numbers)
        if count * batch * max(prod(grid), prod(call.shape[-len(grid) :])) > LARGEST_MAP:
            raise TooLarge
        # Zero padding makes a constant shift smaller at the border, so reduced axes are spelt out to the example's
        # grid.
        spelt = given.numbers.expand(count, *((batch,) if batched else ()), *grid).reshape(count * batch, *grid)
        out = call.target(spelt, weight, None, *args, **kwargs)
        shape = (count, *((batch,) if batched else ()), *out.shape[1:])
        noise = given.noise * gain + 8 * EPS * gain * float(given.numbers.abs().max())
        terms[block] = DenseTerm(reduce_equal(out.reshape(shape)), noise, condition=given.condition)
    return Shift(call.shape, terms)


@rule(
    *("avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
    *("_adaptive_avg_pool2d", "upsample_nearest1d", "upsample_nearest2d", "upsample_bilinear2d", "upsample_linear1d"),
    *("upsample_bicubic2d", "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", "pixel_shuffle", "pixel_unshuffle"),
    *("im2col", "unfold", "cumsum", "tril", "triu", "diagonal"),
)
def linear_in_place(call: OpCall, value: NodeValue, *args: object, **kwargs: object) -> Output:
    """A linear operation without constants applies to the map as it does to the value."""
    shape = value.shape
    # Bicubic weights have negative parts; their sizes sum to less than 2. A running sum adds at most the axis.
    return mapped_by_target(call, value, args, kwargs, gain=float(shape[-1]) if call.op == "cumsum" else 2.0)


@rule("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "max_pool2d_with_indices")
def max_pool(call: OpCall, value: NodeValue, size: Sequence[int], *args: object, **kwargs: object) -> list[Output]:
    """max(x + c) = max(x) + c within a window, so a shift that is constant over the grid is preserved."""
    places = 2 if "2d" in call.op else 1 if "1d" in call.op else 3
    value = call.without_data_shifts(value)
    one = call.demand_constant(value.shift, range(len(value.shape) - places, len(value.shape)))
    for axis in range(len(value.shape) - places, len(value.shape)):
        one = selected(one, axis, torch.tensor([0]))
    outs = call.all_unmoved()
    outs[0] = Output(broadcast(one, call.shape))
    return outs
