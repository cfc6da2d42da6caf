"""Linear maps by weights, and look-ups in tables, which are linear maps of an indicator.

y = W x + c follows its input's action A and has one of its own, A', where for all x

    δW x + W (A x + b) + δc = A' (W x + c) + b' + 1 φ(x),

with any linear function φ, if something further on removes what is equal in all of y's numbers (`FreeShift`). Where
v·x + k = 0 for all x, any multiple of it is free as well.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from addnorm.symmetry.actions.call import Call, Operand, rule
from addnorm.symmetry.actions.equations import ZERO, Ids, Numbers, Term, negative, product_terms
from addnorm.symmetry.actions.system import NoRule, RowMoves, System, unique_rows
from addnorm.symmetry.actions.uses import MapUse
from addnorm.symmetry.actions.values import Fixed, FreeShift, Space, State, Value, Weight

_UNSEEN = 1e-9
"""Share of a shift up to which a map does not see it."""


@rule("linear")
def linear(call: Call) -> State:
    """x W^T + c. Constant zeros, as at the start of a recurrence, ask nothing of the weight."""
    data, bias = call.operand("input"), call.optional("bias")
    if bias is None and data.constant and not bool(data.number.any()):
        return Fixed(constant=True)
    return mapped(call.system, data, call.operand("weight"), bias)


@rule("addmm")
def addmm(call: Call) -> State:
    """c + x W."""
    if call.named.get("beta", 1) != 1 or call.named.get("alpha", 1) != 1:
        raise NoRule
    return mapped(call.system, call.operand("mat1"), transposed(call.operand("mat2")), call.operand("self"))


@rule("embedding")
def embedding(call: Call) -> State:
    """Rows of a table: its transpose times an indicator."""
    table, indices = call.operand("weight"), call.operand("indices")
    places = indices.number
    system = call.system
    value = _map(system, None, None, transposed(table), None, places.shape, is_indicator=True)
    varied = places.reshape(places.shape[0], -1) if places.dim() > 1 else places.reshape(1, -1)
    same = bool((varied == varied[:1]).all()) and len(places.unique()) == varied.shape[1]
    value.space.roles.add("position" if same and varied.shape[1] > 1 and _counts_up(varied[0]) else "embedding")
    return value


def _counts_up(places: Tensor) -> bool:
    return bool((places.diff() == 1).all())


def transposed(operand: Operand) -> Operand:
    """Transpose a weight."""
    if not isinstance(operand.state, Weight | Fixed) or operand.number.dim() != 2:
        raise NoRule
    state = Weight(operand.state.ids.T) if isinstance(operand.state, Weight) else operand.state
    return Operand(operand.number.T, state)


def mapped(system: System, data: Operand, weight: Operand, bias: Operand | None) -> Value:
    """Apply a linear map to the last axis.

    Numbers of several data may be scaled and shifted, each alone.

    Raises:
        NoRule: the weight depends on data.
    """
    if not isinstance(weight.state, Weight) and not weight.constant:
        raise NoRule
    if bias is not None and bias.number.shape != weight.number.shape[:1]:  # one number for all, or a row for each token
        raise NoRule
    lead = data.number.shape[:-1]
    if isinstance(data.state, Fixed):
        return _map(system, None, None, weight, bias, lead)
    if not isinstance(data.state, Value):
        raise NoRule
    value = data.state
    system.drop(value, but=lambda each: _removes(weight.number, each))
    datum = value.datum.max(-1).values
    if bool(((value.datum != datum[..., None]) & (value.forms != 0).any(-1)).any()):
        datum = system.new_data(*lead)
        value = system.vector(_side_by_side(system, value), datum)
    return _map(system, value, datum, weight, bias, lead)


def mapped_by_group(system: System, data: Operand, weight: Operand) -> Value:
    """Matrices of their own for groups of a datum's numbers, [..., group, place, number] times [group, number, made]: the map
    by one matrix with zeros between the groups.

    Raises:
        NoRule: the groups are of different data.
    """
    groups, size, made = weight.number.shape
    state = data.state
    if not isinstance(state, Value | Fixed) or data.number.shape[-3] != groups:
        raise NoRule
    last = data.number.dim() - 1
    if isinstance(state, Value) and bool((state.datum != state.datum.narrow(last - 2, 0, 1)).any()):
        raise NoRule
    joined = data.rearranged(lambda tensor: tensor.transpose(last - 2, last - 1).flatten(last - 1, last))
    matrix = among_zeros(
        weight.rearranged(lambda tensor: tensor.permute(2, 1, 0)),
        (groups, made, groups, size),
        lambda every: every.diagonal(dim1=0, dim2=2),  # [made, number, group]
        groups * made,
    )
    value = mapped(system, joined, matrix, None)
    return value.rearranged(lambda tensor: tensor.unflatten(last - 1, (groups, made)).transpose(last - 2, last - 1))


def repeated_inside(weight: Operand, count: int) -> Operand:
    """W ⊗ I of a matrix: each of its numbers times the unit matrix of a size."""
    if count == 1:
        return weight
    rows, columns = weight.number.shape
    repeated = weight.rearranged(lambda tensor: tensor.unsqueeze(-1))
    return among_zeros(
        repeated, (rows, count, columns, count), lambda every: every.diagonal(dim1=1, dim2=3), rows * count
    )


def among_zeros(weight: Operand, shape: tuple[int, ...], own: Callable[[Tensor], Tensor], rows: int) -> Operand:
    """A matrix of zeros, which stay zero, with a weight in the part that `own` returns of the matrix in the given shape."""
    wide, names = torch.zeros(shape, dtype=torch.float64), torch.full(shape, ZERO)
    own(wide).copy_(weight.number)
    own(names).copy_(torch.from_numpy(np.ascontiguousarray(weight_ids(weight))))
    state = Weight(names.reshape(rows, -1).numpy()) if isinstance(weight.state, Weight) else weight.state
    return Operand(wide.reshape(rows, -1), state)


def _side_by_side(system: System, value: Value) -> Space:
    """A space of the numbers along the last axis, each of data of its own, such as the channels of a scan: y_i = f·X moves by
    σ_i y_i + b_i, if every form f that stands at the place i has f A = σ_i f and f·b = b_i."""
    size, made = value.shape[-1], system.still(value.shape[-1])
    np.fill_diagonal(made.linear, system.equations.unknowns(size))
    made.shift[:] = system.equations.unknowns(size)
    made.roles |= value.space.roles
    for at in range(size):
        for form in unique_rows(value.forms[..., at, :].reshape(-1, value.space.size)):
            scale = np.full((value.space.size, 1), made.linear[at, at]), -form[:, None]
            system.equations.require(product_terms(form[None], value.space.linear), scale)
            shift = made.shift[at : at + 1, None], -np.ones((1, 1))
            system.equations.require(product_terms(form[None], value.space.shift[:, None]), shift)
    return made


def entry_by_entry(system: System, value: Value, weight: Operand) -> Value:
    """The value, with one datum per vector where vectors of several data, such as the heads that a norm joins, meet one weight
    for all their entries: each entry then trades with the weight alone. One action for all data would ask the same of all.
    """
    number = weight.number
    is_row = number.dim() > 0 and number.numel() == number.shape[-1] == value.shape[-1] > 1
    if not is_row or bool((value.datum == value.datum[..., :1]).all()):
        return value
    return system.vector(_side_by_side(system, value), system.new_data(*value.shape[:-1]))


def _removes(weight: Tensor, shift: FreeShift) -> bool:
    """True if a map of the last axis does not see a free shift."""
    if bool((shift.group != shift.group[..., :1]).any()):
        return False
    rows = shift.direction.reshape(-1, shift.direction.shape[-1]).unique(dim=0)
    image, sizes = rows @ weight.detach().double().T, rows.norm(dim=1) * float(weight.detach().double().norm())
    return bool((image.norm(dim=1) <= _UNSEEN * sizes).all())


def weight_ids(operand: Operand) -> Ids:
    """The unknown tangents of a weight or a constant."""
    return operand.state.ids if isinstance(operand.state, Weight) else np.full(tuple(operand.number.shape), ZERO)


def _map(
    system: System,
    value: Value | None,
    datum: Tensor | None,
    weight: Operand,
    bias: Operand | None,
    lead: torch.Size,
    *,
    is_indicator: bool = False,
) -> Value:
    numbers, ids = weight.number.detach().numpy(), weight_ids(weight)
    out, into = numbers.shape
    if value is None or datum is None:
        forms, which = np.eye(into)[None], torch.zeros(lead, dtype=torch.int64)
        before = system.still(into)
        if is_indicator:
            before.nulls = [(np.ones(into), -1.0)]
        datum = system.new_data(*lead)
    else:
        before = value.space
        rows = value.forms.reshape(-1, into * before.size)
        unique, inverse = np.unique(np.round(rows.numpy(), 12), axis=0, return_inverse=True)
        # A use with all numbers of x comes first, because a finite move takes each weight from the first use that has it; a
        # window that reaches into padding has only some.
        order = np.argsort(-np.count_nonzero(unique, axis=1), kind="stable")
        unique, inverse = unique[order], np.argsort(order)[inverse.reshape(-1)]
        forms, which = unique.reshape(-1, into, before.size), torch.from_numpy(inverse).reshape(lead)
    row_moves = system.rows if is_indicator else RowMoves()
    groups = len(forms)
    linear = np.full((groups * out, groups * out), ZERO)
    for at in range(groups):
        part = slice(at * out, at * out + out)
        linear[part, part] = system.equations.unknowns(out, out)
    space = system.space(groups * out, linear=linear, role="map")
    directions = [np.ones(out)]
    # Where entries of the weight are fixed, as between groups, actions would rely on these shifts all along a move.
    if system.unread is not None and system.unread.shape[1] == out and bool((ids != ZERO).all()):
        directions += list(system.unread)
    sources: list[list[Ids]] = []
    for at in range(groups):
        part = slice(at * out, at * out + out)
        sources.append(
            _equations(
                system,
                before,
                forms[at],
                (numbers, ids),
                bias,
                (linear[part, part], space.shift[part]),
                directions,
                row_moves,
            )
        )
    if groups == 1 and out > forms[0].shape[1]:
        given = np.zeros(out) if bias is None else bias.number.detach().expand(out).numpy()
        space.nulls = _never_seen(numbers @ forms[0], given, before.nulls)
        space.roles.add("spanned")
    place = (which[..., None] * out + torch.arange(out)).to(torch.int64)
    made = torch.nn.functional.one_hot(place, groups * out).double()
    group = torch.arange(which.numel()).reshape(lead)[..., None].expand(*lead, out)
    free = tuple(
        FreeShift(group, torch.from_numpy(direction).expand(*lead, out), np.concatenate(unknowns))
        for direction, unknowns in zip(directions, zip(*sources, strict=True), strict=True)
    )
    return Value(space, made, datum[..., None].expand(*lead, out), free)


def _never_seen(image: Numbers, given: Numbers, before: list[tuple[Numbers, float]]) -> list[tuple[Numbers, float]]:
    """The forms of y = W x + c that do not depend on x: W has fewer columns than rows, and x may have such forms, too.

    Of n·x + k = 0 follows v·y + k - v·c = 0 for the v with Wᵀ v = n, if there is one.
    """
    left, values, right = np.linalg.svd(image)
    rank = int((values > 1e-9 * values.max(initial=1e-300)).sum())
    made = [(null, -float(null @ given)) for null in left.T[rank:]]
    for null, constant in before:
        seen = right[:rank] @ null
        if float(np.linalg.norm(right[:rank].T @ seen - null)) <= 1e-9 * float(np.linalg.norm(null)):
            form = left[:, :rank] @ (seen / values[:rank])
            made.append((form, constant - float(form @ given)))
    return with_one_constant(made)


def with_one_constant(nulls: list[tuple[Numbers, float]]) -> list[tuple[Numbers, float]]:
    """The same forms, of which one at most has a constant: a norm, which scales every vector, keeps those without one."""
    constants = np.array([constant for _, constant in nulls])
    length = float(np.linalg.norm(constants))
    if len(nulls) < 2 or length == 0:
        return nulls
    # A reflection that takes the constants to the last of as many axes.
    axis = constants / length
    axis[-1] += 1.0 if axis[-1] >= 0 else -1.0
    turn = np.eye(len(nulls)) - 2 * np.outer(axis, axis) / (axis @ axis)
    forms = turn @ np.array([form for form, _ in nulls])
    made = turn @ constants
    return [(form, 0.0) for form in forms[:-1]] + [(forms[-1], float(made[-1]))]


def _equations(
    system: System,
    before: Space,
    forms: Numbers,
    weight: tuple[Numbers, Ids],
    bias: Operand | None,
    action: tuple[Ids, Ids],
    directions: list[Numbers],
    row_moves: RowMoves,
) -> list[Ids]:
    """Write the equations of one group of the output; return the unknowns φ of its free shift along each direction."""
    (numbers, ids), (linear, shift) = weight, action
    image = numbers @ forms
    out, size = image.shape
    sources = [system.equations.unknowns(size) for _ in directions]
    terms: list[Term] = [
        product_terms(ids, forms),
        negative(product_terms(linear, image)),
        *(
            (np.tile(each, out)[:, None], -np.repeat(along, size)[:, None])
            for each, along in zip(sources, directions, strict=True)
        ),
    ]
    shifts: list[Term] = [(shift[:, None], -np.ones((1, 1)))]
    terms.append(product_terms(image, before.linear))
    shifts.append(product_terms(image, before.shift[:, None]))
    multiples: list[Ids] = []
    for at, (null, constant) in enumerate(before.nulls):
        multiples.append(system.equations.unknowns(out))
        terms.append((np.repeat(multiples[-1], size)[:, None], -np.tile(null, out)[:, None]))
        shifts.append((multiples[-1][:, None], np.full((1, 1), -constant)))
        # A norm's first form is that of the mean; what else it keeps comes from a map of a lower rank.
        is_unseen = "spanned" in before.roles or (at > 0 and bool(before.roles & {"norm", "gain"}))
        (system.unseen if is_unseen else system.marks).append(multiples[-1])
    for numbers_of_rows, constants in row_moves.traded:
        terms.append((np.repeat(constants, size)[:, None], -np.tile(numbers_of_rows, out)[:, None]))
    for scale, vector in row_moves.scaled:
        terms.append((np.tile(scale, out)[:, None], -np.repeat(vector, size)[:, None]))
    system.marks.append(sources[0])
    system.unwritten.extend(sources[1:])
    given, tangent = np.zeros(out), np.full(out, ZERO)
    if bias is not None:
        given = bias.number.detach().expand(out).numpy()
        tangent = np.broadcast_to(weight_ids(bias), (out,))
        shifts.append((tangent[:, None], np.ones((1, 1))))
        shifts.append(negative(product_terms(linear, given[:, None])))
    system.uses.append(
        MapUse(
            before,
            forms,
            ids,
            numbers,
            tangent,
            given,
            linear,
            shift,
            [*zip(sources, directions, strict=True), *row_moves.scaled],
            [
                *zip(multiples, before.nulls, strict=True),
                *((constants, (numbers_of_rows, 0.0)) for numbers_of_rows, constants in row_moves.traded),
            ],
        )
    )
    system.equations.require(*terms)
    system.equations.require(*shifts)
    return sources
