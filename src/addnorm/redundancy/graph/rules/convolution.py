"""Convolutions and pooling, on the full grid: zero padding makes a constant shift vary at the border."""

from collections.abc import Sequence
from math import prod

import torch

from addnorm.redundancy.graph.reshaping import picked, reshaped
from addnorm.redundancy.graph.rule import Site, rule, unchanged
from addnorm.redundancy.graph.rules.shapes import moved_by_target
from addnorm.redundancy.graph.shift import (
    EPS,
    LARGEST_MAP,
    Dense,
    Shift,
    Term,
    TooLarge,
    add,
    reduce_equal,
    spread,
    still,
)
from addnorm.redundancy.graph.value import Out, Value


@rule(
    "convolution",
    "_convolution",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
)
def convolution(
    site: Site, value: Value, weight: Value, bias: Value | None = None, *args: object, **kwargs: object
) -> Out:
    """W * (x + s) + (b + t) = (W * x + b) + (W * s + t), the kernel running over the whole padded grid."""
    site.unchanged(weight)
    value = site.settled(value)
    if value.masked or weight.known is None:
        site.unchanged(value)
        shift = still(site.shape)
    else:
        if value.shift:
            site.assume("inputs have the example's size: what passes a convolution depends on the grid")
        shift = _convolved(site, value.shift, weight.known, args, kwargs)
    if bias is not None:
        bias = site.settled(bias)
        axis = len(site.shape) - (len(weight.shape) - 1)
        shape = tuple(bias.shape[0] if at == axis else 1 for at in range(len(site.shape)))
        shift = add(shift, spread(reshaped(bias.shift, shape), site.shape), site.shape)
    return Out(shift)


def _convolved(
    site: Site, shift: Shift, weight: torch.Tensor, args: tuple[object, ...], kwargs: dict[str, object]
) -> Shift:
    terms: dict[int, Term] = {}
    weight = weight.to(torch.float64)
    batched = len(shift.shape) == weight.dim()
    gain = float(weight.norm())
    for block, given in shift.dense().items():
        batch = given.reduced[0] if batched else 1
        grid = shift.shape[1:] if batched else shift.shape
        count = len(given.numbers)
        if count * batch * max(prod(grid), prod(site.shape[-len(grid) :])) > LARGEST_MAP:
            raise TooLarge
        spelt = given.numbers.expand(count, *((batch,) if batched else ()), *grid).reshape(count * batch, *grid)
        out = site.target(spelt, weight, None, *args, **kwargs)
        shape = (count, *((batch,) if batched else ()), *out.shape[1:])
        noise = given.noise * gain + 8 * EPS * gain * float(given.numbers.abs().max())
        terms[block] = Dense(reduce_equal(out.reshape(shape)), noise, condition=given.condition)
    return Shift(site.shape, terms)


@rule(
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "_adaptive_avg_pool2d",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_bilinear2d",
    "upsample_linear1d",
    "upsample_bicubic2d",
    "_upsample_bicubic2d_aa",
    "_upsample_bilinear2d_aa",
    "pixel_shuffle",
    "pixel_unshuffle",
    "im2col",
    "unfold",
    "cumsum",
    "tril",
    "triu",
    "diagonal",
)
def linear_in_place(site: Site, value: Value, *args: object, **kwargs: object) -> Out:
    """A linear operation without constants: applied to the map as it is to the value."""
    shape = value.shape
    return moved_by_target(site, value, args, kwargs, gain=float(shape[-1]) if site.op == "cumsum" else 2.0)


@rule("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "max_pool2d_with_indices")
def max_pool(site: Site, value: Value, size: Sequence[int], *args: object, **kwargs: object) -> list[Out]:
    """max(x + c) = max(x) + c within a window, so a shift constant over the places passes."""
    places = 2 if "2d" in site.op else 1 if "1d" in site.op else 3
    value = site.settled(value)
    if value.masked:
        return unchanged(site, value)
    one = site.constant(value.shift, range(len(value.shape) - places, len(value.shape)))
    for axis in range(len(value.shape) - places, len(value.shape)):
        one = picked(one, axis, torch.tensor([0]))
    outs = site.all_still()
    outs[0] = Out(spread(one, site.shape))
    return outs
