"""Rules for norms: a shift that the mean subtracts cancels; the variance must not change."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from addnorm.redundancy.graph.reshaping import reshaped
from addnorm.redundancy.graph.rule import OpCall, rule
from addnorm.redundancy.graph.shift import add, broadcast, times, zero_shift
from addnorm.redundancy.graph.value import NodeValue, Output, Plane

_FLAT = 1e-6
"""Smallest gain, relative to the largest, by which it is divided."""


def _scaled_shift(call: OpCall, bias: NodeValue | None, axis: int | None) -> Output:
    """The output of a norm shifts by the shift of its bias, along `axis` if that is not the last one."""
    if bias is None:
        return call.unmoved()
    bias = call.without_data_shifts(bias)
    shift = bias.shift
    if axis is not None:
        shape = tuple(bias.shape[0] if at == axis else 1 for at in range(len(call.shape)))
        shift = reshaped(shift, shape)
    return Output(broadcast(shift, call.shape))


@rule("layer_norm", "native_layer_norm", always=True)
def layer_norm(
    call: OpCall, value: NodeValue, shape: Sequence[int], weight: NodeValue | None, bias: NodeValue | None, *_: object
) -> list[Output]:
    """x + c 1 has the mean of x plus c and the same variance, so a shift that is constant along the normalised axes cancels."""
    call.demand_unchanged(weight)
    call.demand_constant_value(value, [-1 - at for at in range(len(shape))])
    outs = call.all_unmoved()
    plane = _plane(call, weight, bias) if len(shape) == 1 else None
    if len(outs) > 1 and (call.read is None or 1 in call.read):
        call.demand_unchanged(value)  # the mean is an output that is read
    outs[0] = replace(_scaled_shift(call, bias, None), plane=plane)
    return outs


def _plane(call: OpCall, weight: NodeValue | None, bias: NodeValue | None) -> Plane | None:
    """The mean of the entries divided by their gains is that of the bias divided by the gains, for all data."""
    if (weight is not None and weight.known is None) or (bias is not None and bias.known is None):
        return None
    # y = w (x - mean) / std + b gives sum of (y - b) / w = 0 for all x: the entries lie in a plane with the normal 1 /
    # w.
    normal = torch.ones(1, call.shape[-1], dtype=torch.float64)
    if weight is not None and weight.known is not None:
        gains = weight.known.to(torch.float64).abs()
        # A gain near zero would make its entry of 1 / w the whole normal, known only to that gain's rounding.
        if float(gains.min()) < _FLAT * float(gains.max()):
            return None
        normal = normal / weight.known.to(torch.float64)
    normal = normal / normal.norm()
    return Plane(len(call.shape) - 1, lambda: normal)


@rule("group_norm", "native_group_norm")
def group_norm(call: OpCall, value: NodeValue, *args: object, **_: object) -> list[Output]:
    """As layer norm, over each group of channels and all positions together."""
    if call.op == "native_group_norm":
        weight, bias, groups = args[0], args[1], args[5]
    else:
        groups, weight, bias = args[0], *([*args[1:3], None, None][:2])
    call.demand_unchanged(weight if isinstance(weight, NodeValue) else None)
    value = call.without_data_shifts(value)
    outs = call.all_unmoved()
    if not isinstance(groups, int) or len(outs) > 1:
        call.demand_unchanged(value)
    else:
        batch, channels, *grid = value.shape
        # One mean and one variance per group: the shift must be one number over all channels and places of a group.
        split = reshaped(value.shift, (batch, groups, channels // groups, *grid))
        call.demand_constant(split, range(2, 3 + len(grid)))
    outs[0] = _scaled_shift(call, bias if isinstance(bias, NodeValue) else None, 1)
    return outs


BATCH_NORMS = (
    "batch_norm",
    "native_batch_norm",
    "cudnn_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
)


@rule(*BATCH_NORMS)
def batch_norm(
    call: OpCall,
    value: NodeValue,
    weight: NodeValue | None,
    bias: NodeValue | None,
    mean: NodeValue | None,
    variance: NodeValue | None,
    training: bool,
    *rest: object,
) -> list[Output]:
    """With batch statistics it is as layer norm, over batch and positions for each channel; with running statistics it
    is a fixed linear map."""
    call.demand_unchanged(weight)
    value = call.without_data_shifts(value)
    outs = call.all_unmoved()
    if training or mean is None:
        axes = [axis for axis in range(len(value.shape)) if axis != 1]
        # A shift moves the batch's mean, which the running mean stores: unseen here, seen by the next call in
        # evaluation.
        if call.read is None or any(call.read):
            call.demand_unchanged(value)  # a shift changes the statistics, which are read
        else:
            call.demand_constant(value.shift, axes)
            if value.shift:
                call.assume(
                    "batch statistics are used, not running ones: the removal of a bias before a batch norm must move "
                    "running_mean too"
                )
        outs[0] = _scaled_shift(call, bias, 1)
        return outs
    outs[0] = _frozen(call, value, weight, bias, mean, variance, rest[1])
    return outs


@rule("_native_batch_norm_legit_no_training")
def batch_norm_frozen(
    call: OpCall,
    value: NodeValue,
    weight: NodeValue | None,
    bias: NodeValue | None,
    mean: NodeValue,
    variance: NodeValue,
    *rest: object,
) -> list[Output]:
    """A batch norm with running statistics is a fixed linear map."""
    outs = call.all_unmoved()
    outs[0] = _frozen(call, call.without_data_shifts(value), weight, bias, mean, variance, rest[1])
    return outs


def _frozen(
    call: OpCall,
    value: NodeValue,
    weight: NodeValue | None,
    bias: NodeValue | None,
    mean: NodeValue,
    variance: NodeValue | None,
    epsilon: object,
) -> Output:
    call.demand_unchanged(weight, mean, variance)
    value = call.without_data_shifts(value)
    if variance is None or variance.known is None or (weight is not None and weight.known is None):
        call.demand_unchanged(value)
        return _scaled_shift(call, bias, 1)
    # With stored statistics (x - mean) / std * w + b is affine in x with known factors. The mean drops out of a shift.
    factor = (variance.known.to(torch.float64) + float(epsilon)).rsqrt()  # type: ignore[arg-type]
    if weight is not None and weight.known is not None:
        factor = factor * weight.known.to(torch.float64)
    shape = tuple(len(factor) if at == 1 else 1 for at in range(len(call.shape)))
    shift = times(value.shift, factor.reshape(shape), call.shape)
    return Output(add(shift, _scaled_shift(call, bias, 1).shift, call.shape))


@rule("instance_norm")
def instance_norm(
    call: OpCall,
    value: NodeValue,
    weight: NodeValue | None,
    bias: NodeValue | None,
    mean: NodeValue | None,
    variance: NodeValue | None,
    own: bool,
    *rest: object,
) -> Output:
    """As batch norm, over the positions of one channel of one sample."""
    call.demand_unchanged(weight)
    value = call.without_data_shifts(value)
    if not own and mean is not None:
        return _frozen(call, value, weight, bias, mean, variance, rest[1])
    call.demand_constant(value.shift, range(2, len(value.shape)))
    return _scaled_shift(call, bias, 1)


@rule("var", "std", "var_mean", "std_mean", axial=True)
def variance(call: OpCall, value: NodeValue, *args: object, **kwargs: object) -> list[Output]:
    """The variance is that of x - mean(x), in which a constant cancels. If the mean is a second output, nothing may shift."""
    dim = args[0] if args else kwargs.get("dim")
    if len(call.shapes) > 1 or isinstance(dim, bool | NodeValue):
        call.demand_unchanged(value)
        return call.all_unmoved()
    axes = list(range(len(value.shape))) if dim is None else [dim] if isinstance(dim, int) else list(dim)  # type: ignore[call-overload]
    call.demand_constant_value(value, axes or range(len(value.shape)))
    return [Output(zero_shift(shape)) for shape in call.shapes]
