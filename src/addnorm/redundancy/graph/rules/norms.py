"""Norms: what the mean takes away may move, what the variance measures may not."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from addnorm.redundancy.graph.reshaping import reshaped
from addnorm.redundancy.graph.rule import Site, rule
from addnorm.redundancy.graph.shift import add, spread, still, times
from addnorm.redundancy.graph.value import Out, Plane, Value

_FLAT = 1e-6
"""Smallest gain, relative to the largest, that is divided by."""


def _scaled_shift(site: Site, bias: Value | None, axis: int | None) -> Out:
    """The output moves with the norm's own shift; along `axis` if that is not the last."""
    if bias is None:
        return site.still()
    bias = site.settled(bias)
    shift = bias.shift
    if axis is not None:
        shape = tuple(bias.shape[0] if at == axis else 1 for at in range(len(site.shape)))
        shift = reshaped(shift, shape)
    return Out(spread(shift, site.shape))


@rule("layer_norm", "native_layer_norm", always=True)
def layer_norm(
    site: Site, value: Value, shape: Sequence[int], weight: Value | None, bias: Value | None, *_: object
) -> list[Out]:
    """x + c 1 has the mean of x plus c and the same variance, so a shift constant along the normalised axes cancels."""
    site.unchanged(weight)
    site.level(value, [-1 - at for at in range(len(shape))]) if not value.masked else site.unchanged(value)
    outs = site.all_still()
    plane = _plane(site, weight, bias) if len(shape) == 1 else None
    if len(outs) > 1 and (site.read is None or 1 in site.read):
        site.unchanged(value)  # the mean itself is an output, and is read
    outs[0] = replace(_scaled_shift(site, bias, None), plane=plane)
    return outs


def _plane(site: Site, weight: Value | None, bias: Value | None) -> Plane | None:
    """Entries over their gains have the mean of the bias over the gains, whatever the data."""
    if (weight is not None and weight.known is None) or (bias is not None and bias.known is None):
        return None
    normal = torch.ones(1, site.shape[-1], dtype=torch.float64)
    if weight is not None and weight.known is not None:
        gains = weight.known.to(torch.float64).abs()
        if float(gains.min()) < _FLAT * float(gains.max()):
            return None
        normal = normal / weight.known.to(torch.float64)
    normal = normal / normal.norm()
    return Plane(len(site.shape) - 1, lambda: normal)


@rule("group_norm", "native_group_norm")
def group_norm(site: Site, value: Value, *args: object, **_: object) -> list[Out]:
    """As layer norm, over each group of channels and all places together."""
    if site.op == "native_group_norm":
        weight, bias, groups = args[0], args[1], args[5]
    else:
        groups, weight, bias = args[0], *([*args[1:3], None, None][:2])
    site.unchanged(weight if isinstance(weight, Value) else None)
    value = site.settled(value)
    outs = site.all_still()
    if value.masked or not isinstance(groups, int) or len(outs) > 1:
        site.unchanged(value)
    else:
        batch, channels, *places = value.shape
        split = reshaped(value.shift, (batch, groups, channels // groups, *places))
        site.constant(split, range(2, 3 + len(places)))
    outs[0] = _scaled_shift(site, bias if isinstance(bias, Value) else None, 1)
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
    site: Site,
    value: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    training: bool,
    *rest: object,
) -> list[Out]:
    """With batch statistics as layer norm, over batch and places for each channel. With running statistics a fixed
    linear map.
    """
    site.unchanged(weight)
    value = site.settled(value)
    outs = site.all_still()
    if training or mean is None:
        axes = [axis for axis in range(len(value.shape)) if axis != 1]
        if value.masked or site.read is None or any(site.read):
            site.unchanged(value)  # what moves the statistics matters where they are read
        else:
            site.constant(value.shift, axes)
            if value.shift:
                site.assume(
                    "batch statistics, not running ones, are what counts: removing a bias before batch norm must move "
                    "running_mean with it"
                )
        outs[0] = _scaled_shift(site, bias, 1)
        return outs
    outs[0] = _frozen(site, value, weight, bias, mean, variance, rest[1])
    return outs


@rule("_native_batch_norm_legit_no_training")
def batch_norm_frozen(
    site: Site, value: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value, *rest: object
) -> list[Out]:
    """A fixed linear map."""
    outs = site.all_still()
    outs[0] = _frozen(site, site.settled(value), weight, bias, mean, variance, rest[1])
    return outs


def _frozen(
    site: Site,
    value: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value | None,
    epsilon: object,
) -> Out:
    site.unchanged(weight, mean, variance)
    value = site.settled(value)
    if variance is None or variance.known is None or (weight is not None and weight.known is None) or value.masked:
        site.unchanged(value)
        return _scaled_shift(site, bias, 1)
    factor = (variance.known.to(torch.float64) + float(epsilon)).rsqrt()  # type: ignore[arg-type]
    if weight is not None and weight.known is not None:
        factor = factor * weight.known.to(torch.float64)
    shape = tuple(len(factor) if at == 1 else 1 for at in range(len(site.shape)))
    shift = times(value.shift, factor.reshape(shape), site.shape)
    return Out(add(shift, _scaled_shift(site, bias, 1).shift, site.shape))


@rule("instance_norm")
def instance_norm(
    site: Site,
    value: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    own: bool,
    *rest: object,
) -> Out:
    """As batch norm, over the places of one channel of one sample."""
    site.unchanged(weight)
    value = site.settled(value)
    if not own and mean is not None:
        return _frozen(site, value, weight, bias, mean, variance, rest[1])
    if value.masked:
        site.unchanged(value)
    else:
        site.constant(value.shift, range(2, len(value.shape)))
    return _scaled_shift(site, bias, 1)


@rule("var", "std", "var_mean", "std_mean", axial=True)
def variance(site: Site, value: Value, *args: object, **kwargs: object) -> list[Out]:
    """The variance is that of x - mean(x), where a constant cancels. With the mean as second output nothing may move."""
    dim = args[0] if args else kwargs.get("dim")
    value = site.settled(value)
    if value.masked or len(site.shapes) > 1 or isinstance(dim, bool | Value):
        site.unchanged(value)
        return site.all_still()
    axes = list(range(len(value.shape))) if dim is None else [dim] if isinstance(dim, int) else list(dim)  # type: ignore[call-overload]
    site.constant(value.shift, axes or range(len(value.shape)))
    return [Out(still(shape)) for shape in site.shapes]
