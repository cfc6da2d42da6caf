"""Norms, from their parts: a sum of squares, a mean, a power, a product; sums and means alone.

|x|² = x·x moves by x·(A + Aᵀ) x + 2 b·x: it keeps its value where A is skew and b vanishes, and is scaled where A + Aᵀ is a
multiple of the identity. A layer norm sees x less its mean: what is equal in all of x has no effect.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from addnorm.symmetry.actions.call import Call, Operand, require_value, rule
from addnorm.symmetry.actions.equations import ZERO, Numbers, negative, product_terms
from addnorm.symmetry.actions.rules.pointwise import power
from addnorm.symmetry.actions.rules.products import gained, product, scaled
from addnorm.symmetry.actions.rules.shapes import still_vector
from addnorm.symmetry.actions.rules.sums import combined, shifted
from addnorm.symmetry.actions.system import NoRule, System, by_datum, renumbered, unique_rows
from addnorm.symmetry.actions.values import Fixed, FreeShift, Square, State, Value, is_level

_POOLING = frozenset({"adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d"})
"""Poolings over all that is behind the channels, if the result is to have one place."""


@rule("var", "std")
def spread_of(call: Call) -> State:
    """Variance or standard deviation over one axis, of entries of one datum.

    Raises:
        NoRule: over more axes, or a sample of one number.
    """
    value, dims = require_value(call.operand("self").state), call.named.get("dim")
    axes = dims if isinstance(dims, list | tuple) else [dims]
    if len(axes) != 1 or axes[0] is None:
        raise NoRule
    axis = axes[0] % len(value.shape)
    correction = call.named.get("correction")
    correction = int(call.named.get("unbiased", True)) if correction is None else correction
    count = value.shape[axis] - correction
    if count <= 0:
        raise NoRule
    made = length(call.system, _centred(value, axis), [axis], bool(call.named.get("keepdim")), 1.0 / count)
    return made if call.name == "var" else power(call.system, made, 0.5)


def _centred(value: Value, axis: int) -> Value:
    """The value less its mean along an axis, which removes shifts that are equal there."""
    free = []
    for each in value.free:
        is_one = bool((each.group == each.group.narrow(axis, 0, 1)).all())
        direction = each.direction - each.direction.mean(axis, keepdim=True) if is_one else each.direction
        if not is_one or bool((direction.abs() > 1e-12).any()):
            free.append(FreeShift(each.group, direction if is_one else each.direction, each.sources))
    return Value(value.space, value.forms - value.forms.mean(axis, keepdim=True), value.datum, tuple(free))


@rule("mean", "sum", *_POOLING)
def reduced(call: Call) -> State:
    """Sum or mean over axes; pooling to one place is a mean."""
    state = call.operand("self").state
    given = call.named.get("dim")
    if call.name in _POOLING:
        if set(call.named["output_size"]) != {1}:
            raise NoRule
        given = list(range(-len(call.named["output_size"]), 0))
    if given is None or not isinstance(state, Value | Square):
        raise NoRule
    keep = bool(call.named.get("keepdim", call.name in _POOLING))
    value = state.of if isinstance(state, Square) else state
    axes = sorted({axis % value.datum.dim() for axis in (given if isinstance(given, list | tuple) else [given])})
    if isinstance(state, Square):
        factor = 1.0 / int(np.prod([value.shape[axis] for axis in axes])) if call.name != "sum" else 1.0
        return length(call.system, value, axes, keep, factor)
    for axis in reversed(axes):
        value = _reduced(call.system, value, axis, keep, is_mean=call.name != "sum")
    return value


def summed_over(system: System, value: Value, axis: int) -> Value:
    """The sum over an axis."""
    return _reduced(system, value, axis, False, is_mean=False)


def _reduced(system: System, value: Value, axis: int, keep: bool, *, is_mean: bool) -> Value:
    first = value.datum.select(axis, 0).unsqueeze(axis)
    if bool((value.datum == first).all()):
        forms = value.forms.mean(axis, keepdim=True) if is_mean else value.forms.sum(axis, keepdim=True)
        made = Value(value.space, forms, first, _reduced_free(system, value, axis, is_mean=is_mean))
    else:
        form, weights = _common_form(value, axis)
        free = _pooled_free(system, value, axis)
        if bool((weights != 1).any()):
            # A pooling that leaves padding out: the weighted mean moves as every token does. Its factor, the weights' sum, is
            # divided by further on.
            total = weights.mean(axis, keepdim=True) if is_mean else weights.sum(axis, keepdim=True)
            form, first = form * total[..., None], value.datum.amax(axis, keepdim=True)
        elif not is_mean:
            system.vanish_on(np.unique(form.reshape(-1, value.space.size).numpy(), axis=0), value.space, linear=False)
        made = Value(value.space, form, first + system.data, free)
        system.data += int(first.max()) + 1
    return made if keep else made.rearranged(lambda tensor: tensor.squeeze(axis))


@rule("cumsum")
def cumulated(call: Call) -> State:
    """Sums up to each place, as over the tokens in linear attention."""
    system, value = call.system, require_value(call.operand("self").state)
    axis = int(call.named["dim"]) % value.datum.dim()
    system.drop(value)
    if bool((value.datum == value.datum.narrow(axis, 0, 1)).all()):
        return Value(value.space, value.forms.cumsum(axis), value.datum)
    form, weights = _common_form(value, axis)
    if bool((weights != 1).any()):
        raise NoRule
    # As many shifts as there are places before would add up.
    system.vanish_on(unique_rows(form.reshape(-1, value.space.size)), value.space, linear=False)
    value.space.roles.add("value")
    datum = value.datum + system.data
    system.data += int(value.datum.max()) + 1
    return Value(value.space, value.forms, datum)


def _common_form(value: Value, axis: int) -> tuple[Tensor, Tensor]:
    """The form that all entries along an axis have, [.., 1, .., n], and the factor of each, [.., axis, ..].

    Raises:
        NoRule: they have different forms, or none.
    """
    sizes = value.forms.square().sum(-1)
    at = sizes.argmax(axis, keepdim=True)
    form = value.forms.take_along_dim(at[..., None].expand(*at.shape, value.space.size), axis)
    weights = (value.forms * form).sum(-1) / sizes.take_along_dim(at, axis)
    apart = (value.forms - weights[..., None] * form).abs()
    if not bool((sizes.amax(axis) > 0).all()) or bool((apart > 1e-12 * form.abs().max()).any()):
        raise NoRule
    return form, weights


def _reduced_free(system: System, value: Value, axis: int, *, is_mean: bool) -> tuple[FreeShift, ...]:
    made = []
    for each in system.drop(value, but=lambda each: is_level(each.group, axis)):
        direction = each.direction.mean(axis, keepdim=True) if is_mean else each.direction.sum(axis, keepdim=True)
        made.append(FreeShift(each.group.narrow(axis, 0, 1), direction, each.sources))
    return tuple(made)


def _pooled_free(system: System, value: Value, axis: int) -> tuple[FreeShift, ...]:
    """The free shifts of a mean over data: of numbers that may be any at each datum, the mean may be any, too."""
    made = []
    for each in system.drop(value, but=lambda each: is_level(each.direction, axis)):
        first = each.direction.narrow(axis, 0, 1)
        groups = each.group.movedim(axis, -1)
        own = groups.reshape(-1, groups.shape[-1]).unique(dim=0, return_inverse=True)[1]
        made.append(FreeShift(own.reshape(groups.shape[:-1]).unsqueeze(axis), first, each.sources))
    return tuple(made)


def length(system: System, value: Value, axes: list[int], keep: bool, factor: float) -> Value:
    """The sum of squares over axes, which cover one datum or one part of it, times a factor."""
    system.drop(value)
    value = system.whole(value)
    rest = [axis for axis in range(value.datum.dim()) if axis not in axes]
    order = [*rest, *axes]
    lead = [value.shape[axis] for axis in rest]
    datum = value.datum.permute(order).reshape(*lead, -1)
    if bool((datum != datum[..., :1]).any()):
        raise NoRule
    size = value.space.size
    rows = value.forms.permute(*order, value.datum.dim()).reshape(*lead, -1)
    unique, inverse = np.unique(rows.reshape(-1, rows.shape[-1]).numpy(), axis=0, return_inverse=True)
    count = len(unique)
    value.space.roles.add("normed")
    linear = np.full((count, count), ZERO)
    np.fill_diagonal(linear, system.equations.unknowns(count))
    space = system.space(count, linear=linear, shift=np.full(count, ZERO), role="length")
    for at, row in enumerate(unique):
        forms = row.reshape(-1, size)
        gram = forms.T @ forms
        system.equations.require(
            product_terms(value.space.linear.T, gram),
            product_terms(gram, value.space.linear),
            (np.full((size * size, 1), linear[at, at]), -gram.reshape(-1, 1)),
        )
        system.equations.require(product_terms(gram, value.space.shift[:, None]))
    which = torch.from_numpy(inverse.reshape(lead))
    forms = torch.nn.functional.one_hot(which, count).double() * factor
    made = Value(space, forms, datum[..., 0])
    for axis in axes if keep else ():
        made = Value(space, made.forms.unsqueeze(axis), made.datum.unsqueeze(axis))
    return made


@rule("linalg_vector_norm")
def vector_norm(call: Call) -> State:
    """Euclidean length."""
    state, dim = call.operand("self").state, call.named.get("dim")
    if not isinstance(state, Value) or float(call.named.get("ord", 2)) != 2 or dim is None:
        raise NoRule
    axes = sorted({axis % state.datum.dim() for axis in (dim if isinstance(dim, list | tuple) else [dim])})
    return power(call.system, length(call.system, state, axes, bool(call.named.get("keepdim", False)), 1.0), 0.5)


@rule("rms_norm")
def rms_norm(call: Call) -> State:
    """x / sqrt(mean(x²) + eps) * g."""
    state, count = _vectors(call), len(call.named["normalized_shape"])
    axes = list(range(state.datum.dim() - count, state.datum.dim()))
    eps = call.named.get("eps")
    number = torch.tensor(eps if eps else torch.finfo(torch.float32).eps, dtype=torch.float64)
    system = call.system
    system.drop(state)
    state = system.whole(state.with_free(()))
    squares = length(system, state, axes, True, 1.0 / int(np.prod(call.named["normalized_shape"])))
    inverse = power(system, shifted(system, squares, Operand(number, Fixed(constant=True))), -0.5)
    made = product(system, state, inverse, inverse.shape)
    weight = call.optional("weight")
    return gained(system, made, weight) if weight is not None else made


@rule("layer_norm", "native_layer_norm")
def layer_norm(call: Call) -> State:
    """(x - mean) / sqrt(variance + eps) * g + c over the last axis."""
    value = _vectors(call)
    if len(call.named["normalized_shape"]) != 1:
        raise NoRule
    system, made = call.system, _of_vectors(call.system, value)
    weight, bias = call.optional("weight"), call.optional("bias")
    made = gained(system, made, weight) if weight is not None else made
    return shifted(system, made, bias) if bias is not None else made


def _of_vectors(system: System, value: Value) -> Value:
    """(x - mean) / sqrt(variance + eps) of each vector along the last axis."""
    system.drop(value, but=lambda each: is_level(each.group, -1) and is_level(each.direction, -1))
    return _standardised(system, _one_datum_each(system, value.with_free(())))


@rule("group_norm", "native_group_norm")
def group_norm(call: Call) -> State:
    """A layer norm over the numbers of a group of channels, axis 1, at all places. If there are several, of what it reads only
    shifts may move that are equal in a group; without places, as behind the heads of a recurrence, each group is a vector."""
    system, operand = call.system, call.operand("input")
    groups, count = int(call.named.get("num_groups") or call.named["group"]), operand.number.dim()
    last = operand.rearranged(lambda each: each.movedim(1, count - 1))
    value = _vectors(replace(call, named={**call.named, "input": last}))
    if count == 2 and operand.number.shape[1] > groups:
        made = _joined_rows(system, [_of_vectors(system, part) for part in _chunks(value, groups)])
    else:
        system.drop(value)
        space = system.whole(value.with_free(())).space
        system.vanish_on(np.eye(space.size), space, shift=False)
        size = space.size // groups
        system.equal(space.shift, space.shift[np.arange(space.size) // size * size])
        made = still_vector(call, Operand(last.number, Fixed(constant=False)))
        made.space.roles.add("norm")
    weight, bias = call.optional("weight"), call.optional("bias")
    made = gained(system, made, weight) if weight is not None else made
    made = shifted(system, made, bias) if bias is not None else made
    result = made.rearranged(lambda tensor: tensor.movedim(count - 1, 1))
    return result if call.name == "group_norm" else (result, Fixed(constant=False), Fixed(constant=False))


def _chunks(value: Value, count: int) -> list[Value]:
    """Rows [row, number] in as many parts of equal width."""
    size = value.shape[1] // count
    return [value.rearranged(lambda each, at=at: each.narrow(1, at * size, size)) for at in range(count)]  # type: ignore[misc]


def _joined_rows(system: System, parts: list[Value]) -> Value:
    """Rows that are joined again, each a vector of the direct sum of the parts' spaces."""
    space = system.joined(parts)
    for at, part in enumerate(parts):
        own = np.zeros((part.space.size, space.size))
        own[:, at * part.space.size : (at + 1) * part.space.size] = np.eye(part.space.size)
        space.nulls += [(null @ own, constant) for null, constant in part.space.nulls]
    return system.vector(space, system.new_data(parts[0].shape[0]))


@rule("batch_norm", "_native_batch_norm_legit_no_training")
def batch_norm(call: Call) -> State:
    """(x - mean) s g + c with s = 1 / sqrt(variance + eps), by the stored statistics of every channel, which is axis 1.

    It is read as x g s + (c - mean s g): were the mean taken away first, a move of x by a constant would be scaled by g,
    which moves itself, and the finite move would not be exact.
    """
    mean, variance = call.optional("running_mean"), call.optional("running_var")
    if call.named.get("training") or mean is None or variance is None:
        raise NoRule
    system, size = call.system, mean.number.numel()
    scale = (variance.number.double() + float(call.named["eps"])) ** -0.5
    value = _vectors(call).rearranged(lambda tensor: tensor.movedim(1, -1))
    gain, bias = (
        call.optional(name) or Operand(torch.full((size,), number, dtype=torch.float64), Fixed(constant=True))
        for name, number in (("weight", 1.0), ("bias", 0.0))
    )
    value = scaled(gained(system, value, gain), scale)
    value = shifted(system, value, combined(system, bias, gain, -mean.number.double() * scale))
    result = value.rearranged(lambda tensor: tensor.movedim(-1, 1))
    return result if call.name == "batch_norm" else (result, Fixed(constant=True), Fixed(constant=True))


def _one_datum_each(system: System, value: Value) -> Value:
    """The value with a space that its last axis covers. Of a datum of which each vector has a part, as a head has of a token,
    each part becomes a datum: one norm for all parts leaves them one action, too.

    Raises:
        NoRule: a vector has numbers of several data.
    """
    if bool((value.datum != value.datum[..., :1]).any()):
        raise NoRule
    size, counts = value.shape[-1], value.datum[..., 0].unique(return_counts=True)[1]
    if bool((counts != 1).any()):
        value = replace(value, datum=system.new_data(*value.shape[:-1])[..., None].expand(value.shape))
    value = system.whole(value)
    if value.space.size != size:
        raise NoRule
    return value


def _vectors(call: Call) -> Value:
    """The vectors that a norm reads; those that do not move, as after a GELU, still have a mean that it removes.

    Raises:
        NoRule: they are not numbers of one datum each.
    """
    operand = call.operand("input")
    if isinstance(operand.state, Fixed):
        return still_vector(call, operand)
    return require_value(operand.state)


def _standardised(system: System, value: Value) -> Value:
    """x less its mean, by its length: A = K + 1 rᵀ with K skew and K 1 = 0, and b along 1. Afterwards A' = K."""
    before, size = value.space, value.space.size
    before.roles |= {"normed", "centred"}
    plane = np.eye(size) - 1 / size
    half = system.equations.unknowns(size, size)
    system.equations.require((half.reshape(-1, 1), np.ones((1, 1))), negative(product_terms(plane, before.linear)))
    space = system.space(size, shift=np.full(size, ZERO), role="norm")
    scale = system.equations.unknowns(1)
    scales = (np.full((size * size, 1), scale[0]), plane.reshape(-1, 1))
    unit = np.ones((1, 1))
    system.equations.require((space.linear.reshape(-1, 1), unit), negative(product_terms(half, plane)))
    system.equations.require(
        (space.linear.reshape(-1, 1), unit), (space.linear.T.reshape(-1, 1), unit), (scales[0], -scales[1])
    )
    system.equations.require(product_terms(half, np.ones((size, 1))))
    system.equations.require(product_terms(plane, before.shift[:, None]))
    system.equations.require((scale[:, None], unit), nearly=True)
    # Without eps a scale has no effect on what follows, so that A' is K alone.
    after = system.space(size, shift=space.shift, role="norm")
    system.equations.require(
        (after.linear.reshape(-1, 1), unit), (space.linear.reshape(-1, 1), -unit), (scales[0], 0.5 * scales[1])
    )
    after.nulls = [(np.ones(size), 0.0), *_apart_from_mean(before.nulls)]
    return renumbered(value.with_free(()), after, by_datum(value)[0])


def _apart_from_mean(nulls: list[tuple[Numbers, float]]) -> list[tuple[Numbers, float]]:
    """The null forms without a constant that do not see the mean: they see nothing of what is left without it, either."""
    forms = np.array([form for form, constant in nulls if constant == 0])
    if len(forms) < 2:
        return []
    kept = np.linalg.svd(forms.sum(1)[None])[2][1:]
    return [(form, 0.0) for form in kept @ forms]
