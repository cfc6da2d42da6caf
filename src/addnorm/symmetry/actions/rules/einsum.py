"""Einstein sums, two tensors at a time, by products, sums and linear maps."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from addnorm.symmetry.actions.call import Call, Operand, require_value, rule
from addnorm.symmetry.actions.rules.attention import contraction
from addnorm.symmetry.actions.rules.linear import mapped, mapped_by_group, repeated_inside
from addnorm.symmetry.actions.rules.norms import summed_over
from addnorm.symmetry.actions.rules.products import times
from addnorm.symmetry.actions.system import NoRule, System
from addnorm.symmetry.actions.values import NOWHERE, Fixed, State, Value, Weight


@rule("einsum")
def einsum(call: Call) -> State:
    """A product of tensors, summed over the axes that the result lacks; weights come last, so that each is a linear map."""
    parts: list[Operand] = list(call.named["tensors"])
    axes, out = letters_of(str(call.named["equation"]), [each.number.dim() for each in parts])
    order = sorted(range(len(parts)), key=lambda at: isinstance(parts[at].state, Weight))
    parts, axes = [parts[at] for at in order], [axes[at] for at in order]
    while len(parts) > 2:
        still_read = {*out, *"".join(axes[2:])}
        between = "".join(each for each in dict.fromkeys(axes[0] + axes[1]) if each in still_read)
        are_fixed = all(isinstance(each.state, Fixed) for each in parts[:2])
        state = Fixed(constant=False) if are_fixed else einsum_of(call, parts[:2], axes[:2], between)
        equation = f"{axes[0]},{axes[1]}->{between}"
        number = torch.einsum(equation, *(each.number.double() for each in parts[:2]))
        parts, axes = [Operand(number, state), *parts[2:]], [between, *axes[2:]]
    return einsum_of(call, parts, axes, out)


def letters_of(equation: str, dims: Sequence[int]) -> tuple[list[str], str]:
    """A letter for each axis of two tensors or more, and of their product.

    Raises:
        NoRule: the equation has another number of tensors, or no result.
    """
    left, _, out = equation.replace(" ", "").partition("->")
    names = left.split(",")
    if len(dims) < 2 or len(names) != len(dims) or not out:
        raise NoRule
    more = [count - len(name.replace("...", "")) for count, name in zip(dims, names, strict=True)]
    hidden = "".join(chr(ord("A") + at) for at in range(max(more)))
    axes = [
        name.replace("...", hidden[max(more) - count :] if "..." in name else "")
        for count, name in zip(more, names, strict=True)
    ]
    return axes, out.replace("...", hidden)


def einsum_of(call: Call, parts: list[Operand], axes: list[str], out: str) -> State:
    """The product over all letters, with those that the result lacks summed one by one; as a linear map where one part is a
    weight, and as a product of matrices where that has a rule, which knows more of it than of single products."""
    summed = [each for each in dict.fromkeys("".join(axes)) if each not in out]
    for weight, other in ((0, 1), (1, 0)):
        made = _by_weight(call.system, parts[weight], axes[weight], parts[other], axes[other], out)
        if made is not None:
            return made
    if any(isinstance(each.state, Value) for each in parts):
        try:
            return _by_matrices(call.system, parts, axes, out)
        except NoRule:
            pass
    full = out + "".join(summed)
    first, second = (arranged(each, letters, full) for each, letters in zip(parts, axes, strict=True))
    shape = torch.broadcast_shapes(first.number.shape, second.number.shape)
    state = times(call, first, second, shape)
    for _ in summed:
        if not isinstance(state, Value):
            raise NoRule
        state = summed_over(call.system, state, state.datum.dim() - 1)
    return state


def _by_weight(system: System, weight: Operand, letters: str, other: Operand, others: str, out: str) -> State | None:
    """A linear map whose weight may have several axes, as of heads and their entries; None for any other product."""
    rows = "".join(each for each in letters if each not in others)
    columns = "".join(each for each in letters if each in others)
    groups = "".join(each for each in columns if each in out)
    if not isinstance(weight.state, Weight) or not rows or len(groups) == len(columns) or not set(rows) <= set(out):
        return None
    if groups:
        return _by_groups(system, weight, letters, other, others, out, groups)
    rest = "".join(each for each in others if each not in columns)
    inner = "".join(each for each in rest if each in out and each not in _axes_of_data(other, others))
    inner = inner if _are_streams(other, others, columns, inner) else ""
    rest = "".join(each for each in rest if each not in inner)
    laid = arranged(weight, letters, rows + columns)
    sizes, count = laid.number.shape[: len(rows)], len(rest)
    matrix = laid.rearranged(lambda tensor: tensor.reshape(sizes.numel(), -1))
    data = arranged(other, others, rest + columns + inner)
    of_inner = data.number.shape[count + len(columns) :]
    data = data.rearranged(lambda tensor: tensor.flatten(count, count + len(columns + inner) - 1))
    made = mapped(system, data, repeated_inside(matrix, of_inner.numel()), None)
    made = made.rearranged(lambda tensor: tensor.unflatten(count, (*sizes, *of_inner)))
    return arranged(Operand(made.datum, made), rest + rows + inner, out).state


def _are_streams(operand: Operand, letters: str, columns: str, inner: str) -> bool:
    """True if a weight mixes few copies of many numbers of one datum, as of streams: then an action may mix these numbers, and
    the map is W ⊗ I. One matrix for all heads is as well, but there each head may have free shifts of its own."""
    if not isinstance(operand.state, Value) or bool((operand.state.datum == NOWHERE).any()):
        return False
    sizes = [np.prod([operand.number.shape[letters.index(each)] for each in which]) for which in (columns, inner)]
    return bool(sizes[0] < sizes[1]) and not set(columns) & set(_axes_of_data(operand, letters))


def _by_groups(
    system: System, weight: Operand, letters: str, other: Operand, others: str, out: str, groups: str
) -> State | None:
    """A linear map of its own for each group of channels; None where the groups are of different data."""
    rows = "".join(each for each in letters if each not in others)
    inner = "".join(each for each in letters if each in others and each not in out)
    rest = "".join(each for each in others if each not in groups + inner)
    at, laid = len(rest), arranged(weight, letters, groups + inner + rows)
    sizes, made_sizes = laid.number.shape[: len(groups)], laid.number.shape[len(groups + inner) :]
    count = sizes.numel()
    first, last = at + len(groups), len(others) - 1
    data = arranged(other, others, rest + groups + inner).rearranged(
        # One place between the groups and their numbers: each datum has its row of them.
        lambda tensor: tensor.flatten(first, last).flatten(at, first - 1).unsqueeze(at + 1)
    )
    matrices = laid.rearranged(lambda tensor: tensor.reshape(count, -1, made_sizes.numel()))
    try:
        made = mapped_by_group(system, data, matrices)
    except NoRule:
        return None
    made = made.rearranged(lambda tensor: tensor.squeeze(at + 1).unflatten(at + 1, made_sizes).unflatten(at, sizes))
    return arranged(Operand(made.datum, made), rest + groups + rows, out).state


def _by_matrices(system: System, parts: list[Operand], axes: list[str], out: str) -> State:
    """A product of matrices, one for each place in the axes that all three share.

    Raises:
        NoRule: the axes are others, or the product has no rule.
    """
    first, second = axes
    shared = "".join(each for each in first if each in second and each in out)
    row, column = ("".join(each for each in one if each not in two) for one, two in ((first, second), (second, first)))
    inner = "".join(each for each in first if each in second and each not in out)
    # Places are of different data, the entries of a vector of one. Sums over layers or streams are no such product.
    of_first, of_second = (_axes_of_data(each, letters) for each, letters in zip(parts, axes, strict=True))
    along = of_first + of_second
    # What one tensor alone has beside its places, such as the heads of queries that share a key, the other repeats.
    row, more = _place(row, of_first)
    column, others = _place(column, of_second)
    shared += more + others
    if (len(row), len(inner), len(column)) != (1, 1, 1) or not shared or not {*row, *column, *shared} <= set(out):
        raise NoRule
    if any(isinstance(each.state, Fixed) for each in parts):
        is_known = inner in along and row not in along and column not in along
    else:
        is_known = row in of_first and column in of_second and inner not in along
    if not is_known:
        raise NoRule
    one, other = arranged(parts[0], first, shared + row + inner), arranged(parts[1], second, shared + inner + column)
    sizes = torch.broadcast_shapes(one.number.shape[:-2], other.number.shape[:-2])
    made = require_value(contraction(system, *(_repeated(each, sizes) for each in (one, other))))
    return arranged(Operand(made.datum, made), shared + row + column, out).state


def _place(letters: str, of_data: str) -> tuple[str, str]:
    """The axis of places among those that one tensor alone has, and the others."""
    place = next((each for each in letters if each in of_data), letters[-1:])
    return place, letters.replace(place, "")


def _repeated(operand: Operand, sizes: torch.Size) -> Operand:
    """The tensor with its first axes of these sizes."""
    count = len(sizes)
    return operand.rearranged(lambda tensor: tensor.expand(*sizes, *tensor.shape[count:]))


def _axes_of_data(operand: Operand, letters: str) -> str:
    """The axes of a value along which there are several data."""
    if not isinstance(operand.state, Value):
        return ""
    datum = operand.state.datum
    return "".join(each for at, each in enumerate(letters) if bool((datum != datum.narrow(at, 0, 1)).any()))


def arranged(operand: Operand, letters: str, order: str) -> Operand:
    """Order the axes, with new ones of size one for letters that the tensor lacks."""
    places = [letters.index(each) for each in order if each in letters]

    def laid(tensor: Tensor) -> Tensor:
        made = tensor.permute(*places, *range(len(letters), tensor.dim()))
        for at, each in enumerate(order):
            made = made if each in letters else made.unsqueeze(at)
        return made

    return operand.rearranged(laid)
