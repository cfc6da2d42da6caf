"""Inner products of queries and keys, softmax, and weighted sums of values.

q·k moves by q·(Aᵀ + B) k + a·k + q·b, where A, a act on the queries and B, b on the keys. It stays where B = -Aᵀ and a
vanishes; q·b is equal for all keys, so that a softmax over the keys removes it. Weights that sum to one pass an action on
the values on, head by head.
"""

import numpy as np
import torch
from torch import Tensor

from addnorm.redundancy.execution.operation_names import LOG_SOFTMAXES, MASKED, SOFTMAXES
from addnorm.symmetry.actions.call import Call, Operand, require_value, rule
from addnorm.symmetry.actions.equations import ZERO, Ids, Numbers, negative, product_terms
from addnorm.symmetry.actions.rules.linear import mapped, mapped_by_group, transposed
from addnorm.symmetry.actions.rules.products import scaled
from addnorm.symmetry.actions.rules.shapes import still_vector
from addnorm.symmetry.actions.rules.sums import shifted
from addnorm.symmetry.actions.system import NoRule, System, unique_rows
from addnorm.symmetry.actions.values import Fixed, FreeShift, Space, State, Value, Weight, is_level

_KINDS = 64
"""Largest number of kinds of places in one row of keys or values."""
_SUM = 1e-9
"""Weights sum to one up to this."""


@rule("scaled_dot_product_attention")
def attention(call: Call) -> State:
    """softmax(q k^T + mask) v."""
    system = call.system
    query, key, value = (call.operand(name) for name in ("query", "key", "value"))
    mask = call.optional("attn_mask")
    if call.named.get("dropout_p"):
        raise NoRule
    if mask is not None and not mask.constant:
        if isinstance(mask.state, Weight):
            _level(system, mask.state, mask.number)
        if isinstance(mask.state, Value):
            normalised(system, mask.state, mask.number.dim() - 1)
    heads = query.number.shape[-3] if query.number.dim() > 3 else 1
    if isinstance(query.state, Value) or isinstance(key.state, Value):
        one, other = _value(call, query), _value(call, key)
        system.drop(one)
        system.drop(other)
        _scores(system, one, other, heads, None)
    if not isinstance(value.state, Value):
        if isinstance(value.state, Fixed):
            return Fixed(constant=False)
        raise NoRule
    return averaged(system, value.state, heads, query.number.shape[-2])


def _level(system: System, mask: Weight, number: torch.Tensor) -> None:
    """Require that learned numbers which are added to scores move alike for all keys that are not masked."""
    ids = np.broadcast_to(mask.ids, tuple(number.shape)).reshape(-1, number.shape[-1])
    seen = (number > MASKED).numpy().reshape(ids.shape)
    first = np.take_along_axis(ids, seen.argmax(1)[:, None], 1)
    pairs = np.unique(np.stack([ids[seen], np.broadcast_to(first, ids.shape)[seen]], 1), axis=0)
    system.equal(pairs[:, 0], pairs[:, 1])


def from_zero(system: System, weight: Operand) -> Value:
    """Learned vectors as a value: zeros, which any action keeps, plus the weight."""
    shape = weight.number.shape
    zero = system.space(shape[-1], shift=np.full(shape[-1], ZERO))
    return shifted(system, system.vector(zero, system.new_data(*shape[:-1])), weight)


def _columns(value: Value) -> Value:
    """The value with its last two axes exchanged."""
    last = value.datum.dim() - 1
    return value.rearranged(lambda tensor: tensor.transpose(last - 1, last))


def learned(system: System, weight: Operand) -> Value:
    """Learned vectors [..., head, place, d] as a value; all heads of a place are one vector, of which each has its own part."""
    if not isinstance(weight.state, Weight) or weight.number.dim() < 4:
        return from_zero(system, weight)
    heads, depth = weight.number.shape[-3], weight.number.shape[-1]
    ids = np.swapaxes(weight.state.ids, -3, -2)
    flat = Operand(weight.number.transpose(-3, -2).flatten(-2), Weight(ids.reshape(*ids.shape[:-2], -1)))
    last = flat.number.dim() - 1
    return from_zero(system, flat).rearranged(
        lambda tensor: tensor.unflatten(last, (heads, depth)).transpose(last - 1, last)
    )


def _value(call: Call, operand: Operand) -> Value:
    if isinstance(operand.state, Value):
        return operand.state
    if isinstance(operand.state, Fixed):
        return still_vector(call, operand)
    if isinstance(operand.state, Weight):
        return learned(call.system, operand)
    raise NoRule


def per_head(value: Value, heads: int) -> list[list[Numbers]]:
    """The different forms [d, n] of every head of a value [..., head, place, d]; fewer heads are repeated.

    Places differ where keys of two layers, or a sink's, stand in one row.

    Raises:
        NoRule: the heads do not fit.
    """
    forms = value.forms if value.datum.dim() > 3 else value.forms.unsqueeze(-4)
    own = forms.shape[-4]
    if heads % own or forms.dim() > 5:
        raise NoRule
    by_head = forms.movedim(-4, 0).reshape(own, -1, forms.shape[-2], forms.shape[-1])
    if by_head.shape[1] > 1 and not bool((by_head != by_head[:, :1]).any()):
        by_head = by_head[:, :1]
    kinds = [unique_rows(each.reshape(len(each), -1)).reshape(-1, *each.shape[1:]) for each in by_head]
    if any(len(each) > _KINDS for each in kinds):
        raise NoRule
    return [list(kinds[head * own // heads]) for head in range(heads)]


def _one_datum(value: Value) -> None:
    """Require that the last axis holds numbers of one datum.

    Raises:
        NoRule: it does not.
    """
    datum = value.datum.max(-1).values
    if bool(((value.datum != datum[..., None]) & (value.forms != 0).any(-1)).any()):
        raise NoRule


def _scores(system: System, query: Value, key: Value, heads: int, space: Space | None) -> list[tuple[Numbers, Value]]:
    """Equations of the inner products of every head. Returns the products M of the forms: the score is q M k.

    Args:
        space: the scores' own, with a factor per head on its diagonal; None where they must not change.
    """
    query, key = _wholly(system, query), _wholly(system, key)
    _one_datum(query)
    _one_datum(key)
    query.space.roles.add("query")
    key.space.roles.add("key")
    grams: list[tuple[Numbers, Value]] = []
    for head, (ones, others) in enumerate(zip(per_head(query, heads), per_head(key, heads), strict=True)):
        for one in ones:
            products = [one.T @ other for other in others]
            for gram in products:
                terms = [product_terms(query.space.linear.T, gram), product_terms(gram, key.space.linear)]
                if space is not None:
                    terms.append((np.full((gram.size, 1), space.linear[head, head]), -gram.reshape(-1, 1)))
                system.equations.require(*terms)
                # a·k differs between keys.
                system.equations.require(product_terms(gram.T, query.space.shift[:, None]))
                # q·b is equal for all keys of one kind, and must be for keys of all kinds.
                system.equations.require(product_terms(gram - products[0], key.space.shift[:, None]))
            if space is not None:
                grams.append((products[0], key))
    return grams


def _wholly(system: System, value: Value) -> Value:
    """A space of the value's own, if its forms differ between places, as after a rotation by position."""
    try:
        return system.whole(value)
    except NoRule:
        return value


@rule("matmul", "bmm", "mm")
def contracted(call: Call) -> State:
    """Matrix products: by a weight, of weights with values over places, of queries with keys."""
    return contraction(
        call.system, call.operand("self"), call.operand("mat2" if call.name in ("bmm", "mm") else "other")
    )


@rule("baddbmm")
def added(call: Call) -> State:
    """A constant or a weight, such as a bias by position or by channel, plus a batch of matrix products."""
    given = call.operand("self")
    if not given.constant and not isinstance(given.state, Weight):
        raise NoRule
    alpha, beta = (float(call.named.get(name, 1)) for name in ("alpha", "beta"))
    made = require_value(contraction(call.system, call.operand("batch1"), call.operand("batch2")))
    summand = Operand((given.number * beta).expand(call.result.shape), given.state)
    return shifted(call.system, scaled(made, torch.tensor(alpha, dtype=torch.float64)), summand, beta)


def contraction(system: System, first: Operand, second: Operand) -> State:
    """The product of matrices, [*, row, number] and [*, number, column]."""
    if isinstance(second.state, Weight) and second.number.dim() == 2:
        return mapped(system, first, transposed(second), None)
    if isinstance(first.state, Weight) and first.number.dim() == 2 and isinstance(second.state, Value):
        return _columns(mapped(system, _turned(second), first, None))
    if isinstance(second.state, Weight) and second.number.dim() == 3 and first.number.dim() >= 3:
        return mapped_by_group(system, first, second)
    heads = max(_period(each) for each in (first, second))
    if heads > 1:
        state = require_value(contraction(system, *(_with_heads(each, heads) for each in (first, second))))
        return state.rearranged(lambda tensor: tensor.flatten(0, 1))
    if isinstance(first.state, Weight) and isinstance(second.state, Value) and first.number.dim() >= 3:
        first = Operand(first.number, learned(system, first))
    if isinstance(first.state, Fixed) and isinstance(second.state, Value) and second.number.dim() >= 3:
        return _mixed(system, first, second)
    if isinstance(first.state, Value) and isinstance(second.state, Value) and first.number.dim() >= 3:
        return (_mixed if _are_places(second.state) else _products)(system, first, second)
    if isinstance(first.state, Value) and isinstance(second.state, Fixed) and second.number.dim() >= 3:
        return _columns(require_value(contraction(system, _turned(second), _turned(first))))
    raise NoRule


def _turned(operand: Operand) -> Operand:
    """A tensor with its last two axes exchanged."""
    last = operand.number.dim() - 1
    return operand.rearranged(lambda tensor: tensor.transpose(last - 1, last))


def _period(operand: Operand) -> int:
    """Number of heads of a value [batch × head, place, d]: of what the forms are along the first axis."""
    if not isinstance(operand.state, Value) or operand.number.dim() != 3:
        return 1
    forms = operand.state.forms.reshape(len(operand.number), -1)
    heads = len(unique_rows(forms))
    return heads if len(forms) % heads == 0 and torch.equal(forms, forms[:heads].repeat(len(forms) // heads, 1)) else 1


def _with_heads(operand: Operand, heads: int) -> Operand:
    """A tensor [batch × head, …] as [batch, head, …]."""
    return operand.rearranged(lambda tensor: tensor.unflatten(0, (-1, heads)))


def _are_places(value: Value) -> bool:
    """True if rows are of different data, as values are, and not the numbers of one datum, as in keys that are transposed."""
    datum = value.datum
    return bool((datum == datum[..., :1]).all() and (datum != datum[..., :1, :]).any())


def _mixed(system: System, weights: Operand, values: Operand) -> State:
    value = require_value(values.state)
    shape = values.number.shape
    lead = torch.broadcast_shapes(weights.number.shape[:-2], shape[:-2])
    total = weights.number.double().sum(-1)
    factors = _factors(system, weights.state) if isinstance(weights.state, Value) else None
    if factors is not None or bool(((total - 1).abs() > _SUM).any()):
        rows = unique_rows(value.forms.reshape(-1, value.space.size))
        system.vanish_on(rows, value.space, linear=False)
    heads = int(lead[-1]) if len(lead) > 1 else 1
    return averaged(system, value, heads, weights.number.shape[-2], factors)


def _factors(system: System, weights: Value) -> Ids:
    """A factor for each head of weights [..., head, row, place] that learned numbers have a part in, such as the differences
    or mixtures of two heads' softmaxes: any other move of them would be one of the values, too."""
    system.drop(weights)
    by_head = (weights.forms if len(weights.shape) > 2 else weights.forms.unsqueeze(-4)).movedim(-4, 0)
    factors = system.equations.unknowns(len(by_head))
    for factor, forms in zip(factors, by_head, strict=True):
        for form in unique_rows(forms.reshape(-1, weights.space.size)):
            scale = np.full((weights.space.size, 1), factor), -form[:, None]
            system.equations.require(product_terms(form[None], weights.space.linear), scale)
            system.vanish_on(form[None], weights.space, linear=False)
    return factors


def averaged(system: System, value: Value, heads: int, places: int, factors: Ids | None = None) -> Value:
    """Weighted means over the places of a value [..., head, place, d], with weights of their own per head, which may move by a
    factor each."""
    free = _free_of_means(system, value, heads, places)
    forms = per_head(value, heads)
    value.space.roles.add("value")
    depth = forms[0][0].shape[0]
    size = heads * depth
    linear = np.full((size, size), ZERO)
    for head in range(heads):
        part = slice(head * depth, head * depth + depth)
        linear[part, part] = system.equations.unknowns(depth, depth)
    space = system.space(size, linear=linear, role="average")
    for head, kinds in enumerate(forms):
        part = slice(head * depth, head * depth + depth)
        for form in kinds:
            if factors is None:
                system.intertwine(linear[part, part], form, value.space.linear)
            else:
                moved = negative(product_terms(linear[part, part], form))
                scale = np.full((form.size, 1), factors[head % len(factors)]), form.reshape(-1, 1)
                system.equations.require(product_terms(form, value.space.linear), moved, scale)
            system.equal(space.shift[part], system.image(form, value.space.shift))
    batch = value.datum.shape[:-3] if value.datum.dim() > 3 else value.datum.shape[:-2]
    datum = system.new_data(*batch, places)
    made: Tensor = torch.eye(size, dtype=torch.float64).reshape(heads, 1, depth, size)
    if value.datum.dim() > 3:
        made = made.expand(*batch, heads, places, depth, size)
        return Value(space, made, datum.unsqueeze(-2).unsqueeze(-1).expand(*batch, heads, places, depth), free)
    return Value(space, made[0].expand(*batch, places, depth, size), datum.unsqueeze(-1).expand(*batch, places, depth))


def _free_of_means(system: System, value: Value, heads: int, places: int) -> tuple[FreeShift, ...]:
    """The free shifts of weighted means over places [..., head, place, d]: of any number at each place, any at each mean."""
    made = []
    # Alike in all heads, in all numbers of a head, and at all places.
    levels = (("group", -3), ("group", -1), ("direction", -2))
    for each in system.drop(
        value, lambda each: each.group.dim() > 3 and all(is_level(getattr(each, name), axis) for name, axis in levels)
    ):
        first = each.direction[..., :1, :]
        shape = (*each.group.shape[:-3], heads, places, each.group.shape[-1])
        batch = each.group.shape[:-3]
        group = torch.arange(int(np.prod(batch)) * places).reshape(*batch, 1, places, 1).expand(shape)
        direction = first.repeat_interleave(heads // first.shape[-3], -3).expand(shape)
        made.append(FreeShift(group, direction, each.sources))
    return tuple(made)


def _products(system: System, first: Operand, second: Operand) -> Value:
    query, transposed_key = require_value(first.state), require_value(second.state)
    key = Value(transposed_key.space, transposed_key.forms.transpose(-3, -2), transposed_key.datum.transpose(-2, -1))
    system.drop(query)
    system.drop(transposed_key)
    heads = max(query.datum.shape[-3], key.datum.shape[-3]) if query.datum.dim() > 3 else 1
    linear = np.full((heads, heads), ZERO)
    np.fill_diagonal(linear, system.equations.unknowns(heads))
    space = system.space(heads, linear=linear, shift=np.full(heads, ZERO), role="score")
    grams = _scores(system, query, key, heads, space)
    sources = []
    for gram, keys in grams:
        made = system.equations.unknowns(len(gram))
        system.equations.require((made[:, None], -np.ones((1, 1))), product_terms(gram, keys.space.shift[:, None]))
        sources.append(made)
    batch = (
        torch.broadcast_shapes(query.datum.shape[:-3], key.datum.shape[:-3])
        if query.datum.dim() > 3
        else query.datum.shape[:-2]
    )
    rows, columns = query.datum.shape[-2], key.datum.shape[-2]
    shape = (*batch, heads, rows, columns) if query.datum.dim() > 3 else (*batch, rows, columns)
    datum = system.new_data(*batch, rows, columns)
    forms = torch.eye(heads, dtype=torch.float64).reshape(heads, 1, 1, heads)
    group = torch.arange(int(np.prod(shape[:-1]))).reshape(*shape[:-1], 1).expand(shape)
    free = (FreeShift(group, torch.ones(shape, dtype=torch.float64), np.concatenate(sources)),)
    if query.datum.dim() > 3:
        return Value(space, forms.expand(*shape, heads), datum.unsqueeze(-3).expand(shape), free)
    return Value(space, forms[0].expand(*shape, heads), datum, free)


@rule(*SOFTMAXES, *LOG_SOFTMAXES)
def softmax(call: Call) -> State:
    """Softmax over an axis."""
    state = call.operand("self").state
    if not isinstance(state, Value):
        raise NoRule
    normalised(call.system, state, int(call.named["dim"]) % state.datum.dim())
    return Fixed(constant=False)


@rule("topk")
def largest(call: Call) -> State:
    """The largest entries along an axis. Which they are must not change: A vanishes, and shifts are equal along the axis."""
    state = call.operand("self").state
    if not isinstance(state, Value):
        raise NoRule
    axis = int(call.named.get("dim", -1)) % state.datum.dim()
    one = state.rearranged(lambda tensor: tensor.narrow(axis, 0, 1))
    normalised(call.system, state, axis)
    shape = call.result[0].shape
    first = one.forms.reshape(-1, state.space.size)
    if bool((first != first[:1]).any()):
        raise NoRule
    space = call.system.still(1)
    space.shift[:] = call.system.image(first[:1].numpy(), state.space.shift)
    forms = torch.ones(*shape, 1, dtype=torch.float64)
    kept = tuple(FreeShift(each.group.expand(shape), each.direction.expand(shape), each.sources) for each in one.free)
    return Value(space, forms, one.datum.expand(shape), kept), Fixed(constant=False)


def normalised(system: System, value: Value, axis: int) -> None:
    """Require that a softmax over an axis does not change: A vanishes, and shifts are equal along the axis."""
    system.drop(value, but=lambda each: is_level(each.group, axis) and is_level(each.direction, axis))
    size = value.space.size
    system.vanish_on(unique_rows(value.forms.reshape(-1, size)), value.space, shift=False)
    steps = unique_rows(value.forms.diff(dim=axis).reshape(-1, size))
    if len(steps):
        system.vanish_on(steps, value.space, linear=False)
