"""Convolutions: linear maps of a window, whose every place has the same action.

    y_t = sum_j W_j x_{t+j} + c        δW_j + W_j A = A' W_j for every j, and sum_j W_j b + δc = A' c + b'

A window of k places of x is one vector of the direct sum of k copies of x's space, with one action for all of them. Padding
with zeros stays as it is only if b vanishes.
"""

import numpy as np
import torch
from torch import Tensor

from addnorm.symmetry.actions.call import Call, Operand, rule
from addnorm.symmetry.actions.equations import ZERO
from addnorm.symmetry.actions.rules.linear import mapped, weight_ids
from addnorm.symmetry.actions.system import NoRule, System
from addnorm.symmetry.actions.values import NOWHERE, Fixed, Space, State, Value, Weight

_WIDEST = 512
"""Numbers of a window up to which its action is written out."""


@rule("conv1d", "conv2d", "convolution")
def convolution(call: Call) -> State:
    """A convolution over one or two axes, with groups, strides and zeros as padding."""
    data, weight, bias = call.operand("input"), call.operand("weight"), call.optional("bias")
    if call.named.get("transposed") or not isinstance(call.result, Tensor):
        raise NoRule
    groups = int(call.named.get("groups", 1))
    flat = Operand(*_dense(weight, data.number.shape[1], groups))
    windows = _windows(call, data.number, weight.number.shape[2:])
    if isinstance(data.state, Fixed):
        made = mapped(call.system, Operand(windows, Fixed(constant=False)), flat, bias)
    elif isinstance(data.state, Value):
        value = _window_value(call, data.state, weight.number.shape[2:])
        made = mapped(call.system, Operand(windows, value), flat, bias)
    else:
        raise NoRule
    return _channels_second(made)


def _dense(weight: Operand, channels: int, groups: int) -> tuple[Tensor, State]:
    """The weight as one matrix [out, channels × places], with zeros between groups."""
    number, ids = weight.number.double(), torch.from_numpy(np.ascontiguousarray(weight_ids(weight)))
    out, own = number.shape[:2]
    size = int(np.prod(number.shape[2:]))
    wide, names = torch.zeros(out, channels, size, dtype=torch.float64), torch.full((out, channels, size), ZERO)
    for row in range(out):
        start = row * groups // out * own
        wide[row, start : start + own] = number[row].reshape(own, size)
        names[row, start : start + own] = ids[row].reshape(own, size)
    state = Weight(names.reshape(out, -1).numpy()) if isinstance(weight.state, Weight) else weight.state
    return wide.reshape(out, -1), state


def _windows(call: Call, tensor: Tensor, kernel: torch.Size) -> Tensor:
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
    return made.transpose(1, 2).reshape(tensor.shape[0], *call.result.shape[2:], -1)


def _window_value(call: Call, value: Value, kernel: torch.Size) -> Value:
    """The windows of a value: forms of the direct sum of its space, once for every place of a window."""
    system = call.system
    system.drop(value)
    places, size = int(np.prod(kernel)), value.space.size
    if places * size > _WIDEST:
        raise NoRule
    forms = torch.stack([_windows(call, each, kernel) for each in value.forms.movedim(-1, 0)], -1)
    held = _windows(call, (value.datum != NOWHERE).double(), kernel)
    if bool((held == 0).any()):  # a shift would have to stop at the padding
        system.vanish_on(np.unique(value.forms.reshape(-1, size).numpy(), axis=0), value.space, linear=False)
    joint = _copies(system, value, places)
    place = torch.arange(forms.shape[-2]) % places
    spread = torch.zeros(*forms.shape[:-1], places, size, dtype=torch.float64)
    spread[..., torch.arange(forms.shape[-2]), place, :] = forms
    lead = forms.shape[:-2]
    datum = system.new_data(*lead)[..., None].expand(forms.shape[:-1])
    return Value(joint, spread.reshape(*forms.shape[:-1], places * size), datum)


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
