"""Convolutions: linear maps of a window, whose every place has the same action.

    y_t = sum_j W_j x_{t+j} + c        δW_j + W_j A = A' W_j for every j, and sum_j W_j b + δc = A' c + b'

A window of k places of x is one vector of the direct sum of k copies of x's space, with one action for all of them. Padding
with zeros stays as it is only if b vanishes.

Along an axis that a window does not span, one datum's numbers may stand, as those of a head in a convolution over tokens that
has a kernel for each head. They count as channels, W ⊗ I for W: then an action may mix them.
"""

import numpy as np
import torch
from torch import Tensor

from addnorm.symmetry.actions.call import Call, Operand, rule
from addnorm.symmetry.actions.equations import ZERO
from addnorm.symmetry.actions.rules.linear import among_zeros, mapped
from addnorm.symmetry.actions.system import NoRule, System
from addnorm.symmetry.actions.values import NOWHERE, Fixed, Space, State, Value

_WIDEST = 512
"""Numbers of a window up to which its action is written out."""


@rule("conv1d", "conv2d", "convolution")
def convolution(call: Call) -> State:
    """A convolution over one or two axes, with groups, strides and zeros as padding."""
    data, weight, bias = call.operand("input"), call.operand("weight"), call.optional("bias")
    if call.named.get("transposed") or not isinstance(call.result, Tensor):
        raise NoRule
    kernel, places = weight.number.shape[2:], list(call.result.shape[2:])
    axis = _axis_of_one_datum(call, data, kernel)
    inner = 1 if axis is None else places[axis - 2]
    flat = _dense(weight, data.number.shape[1], int(call.named.get("groups", 1)), inner)
    if axis is not None:
        data = data.rearranged(lambda tensor: tensor.movedim(axis, 2).flatten(1, 2).unsqueeze(axis))
        bias = None if bias is None else bias.rearranged(lambda tensor: tensor.repeat_interleave(inner))
        places[axis - 2] = 1
    if isinstance(data.state, Fixed):
        windows = Operand(_windows(call, data.number, kernel, places), Fixed(constant=False))
    elif isinstance(data.state, Value):
        value = _window_value(call, data.state, kernel, places)
        windows = Operand(_windows(call, data.number, kernel, places), value)
    else:
        raise NoRule
    made = _channels_second(mapped(call.system, windows, flat, bias))
    if axis is None:
        return made
    return made.rearranged(lambda tensor: tensor.squeeze(axis).unflatten(1, (-1, inner)).movedim(2, axis))


def _axis_of_one_datum(call: Call, data: Operand, kernel: torch.Size) -> int | None:
    """An axis of the data, behind the channels, which no window spans and along which the numbers are of one datum."""
    if not isinstance(data.state, Value):
        return None
    datum, places = data.state.datum, call.result.shape[2:]
    for axis, size in enumerate(kernel, 2):
        first = datum.narrow(axis, 0, 1)
        if size == 1 < datum.shape[axis] == places[axis - 2] and bool((datum == first).all()):
            return axis
    return None


def _dense(weight: Operand, channels: int, groups: int, inner: int) -> Operand:
    """The weight as one matrix [out × inner, channels × inner × places], with zeros between groups and inner numbers."""
    out, own = weight.number.shape[:2]
    return among_zeros(
        # [out of a group, channel of a group, place, group, inner number]
        weight.rearranged(
            lambda tensor: tensor.reshape(groups, out // groups, own, -1).permute(1, 2, 3, 0).unsqueeze(-1)
        ),
        (groups, out // groups, inner, groups, channels // groups, inner, weight.number[0, 0].numel()),
        lambda every: every.diagonal(dim1=0, dim2=3).diagonal(dim1=1, dim2=3),
        out * inner,
    )


def _windows(call: Call, tensor: Tensor, kernel: torch.Size, places: list[int]) -> Tensor:
    """[batch, channel, *place] to [batch, *place, channel × window], zeros where it is padded."""

    def pair(name: str, default: int) -> tuple[int, ...]:
        given = call.named.get(name, default)
        if isinstance(given, str):
            raise NoRule
        numbers = list(given) if isinstance(given, list | tuple) else [int(given)]
        return tuple(numbers * len(kernel) if len(numbers) == 1 else numbers)

    stride, padding, dilation = pair("stride", 1), pair("padding", 0), pair("dilation", 1)
    given = tensor if len(kernel) == 2 else tensor.unsqueeze(-2)
    lead = () if len(kernel) == 2 else (1,)  # `unfold` wants two axes
    made = torch.nn.functional.unfold(
        given.double(),
        (*lead, *kernel),
        dilation=(*lead, *dilation),
        padding=(*(0 for _ in lead), *padding),
        stride=(*lead, *stride),
    )
    return made.transpose(1, 2).reshape(tensor.shape[0], *places, -1)


def _window_value(call: Call, value: Value, kernel: torch.Size, places: list[int]) -> Value:
    """The windows of a value: forms of the direct sum of its space, once for every place of a window."""
    system = call.system
    system.drop(value)
    taps, size = int(np.prod(kernel)), value.space.size
    if taps * size > _WIDEST:
        raise NoRule
    forms = torch.stack([_windows(call, each, kernel, places) for each in value.forms.movedim(-1, 0)], -1)
    held = _windows(call, (value.datum != NOWHERE).double(), kernel, places)
    if bool((held == 0).any()):  # a shift would have to stop at the padding
        system.vanish_on(np.unique(value.forms.reshape(-1, size).numpy(), axis=0), value.space, linear=False)
    joint = _copies(system, value, taps)
    tap = torch.arange(forms.shape[-2]) % taps
    spread = torch.zeros(*forms.shape[:-1], taps, size, dtype=torch.float64)
    spread[..., torch.arange(forms.shape[-2]), tap, :] = forms
    lead = forms.shape[:-2]
    datum = system.new_data(*lead)[..., None].expand(forms.shape[:-1])
    return Value(joint, spread.reshape(*forms.shape[:-1], taps * size), datum)


def _copies(system: System, value: Value, count: int) -> Space:
    size = value.space.size
    linear, shift = np.full((count * size, count * size), ZERO), np.tile(value.space.shift, count)
    for at in range(count):
        linear[at * size : at * size + size, at * size : at * size + size] = value.space.linear
    made = system.space(count * size, linear=linear, shift=shift)
    made.roles |= value.space.roles
    return made


def _channels_second(value: Value) -> Value:
    """A map has its channels last; a convolution has them before the places."""
    last = value.datum.dim() - 1
    return value.rearranged(lambda tensor: tensor.movedim(last, 1))
