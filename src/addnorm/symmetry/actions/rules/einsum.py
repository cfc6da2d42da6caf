"""Einstein sums of two tensors, by products, sums and linear maps."""

import torch
from torch import Tensor

from addnorm.symmetry.actions.call import Call, Operand, rule
from addnorm.symmetry.actions.rules.arithmetic import times
from addnorm.symmetry.actions.rules.linear import mapped, transposed
from addnorm.symmetry.actions.rules.norms import summed_over
from addnorm.symmetry.actions.system import NoRule
from addnorm.symmetry.actions.values import State, Value, Weight


@rule("einsum")
def einsum(call: Call) -> State:
    """A product of two tensors, summed over the axes that the result lacks."""
    parts: list[Operand] = list(call.named["tensors"])
    left, _, out = str(call.named["equation"]).replace(" ", "").partition("->")
    names = left.split(",")
    if len(parts) != 2 or not out:
        raise NoRule
    most = max(each.number.dim() - len(name.replace("...", "")) for each, name in zip(parts, names, strict=True))
    hidden = "".join(chr(ord("A") + at) for at in range(most))
    axes = [
        name.replace(
            "...", hidden[most - (each.number.dim() - len(name.replace("...", ""))) :] if "..." in name else ""
        )
        for each, name in zip(parts, names, strict=True)
    ]
    out = out.replace("...", hidden)
    return einsum_of(call, parts, axes, out)


def einsum_of(call: Call, parts: list[Operand], axes: list[str], out: str) -> State:
    """The product over all letters, with those that the result lacks summed one by one; by a matrix where one part is one."""
    summed = [each for each in dict.fromkeys("".join(axes)) if each not in out]
    for weight, other in ((0, 1), (1, 0)):
        rows = [each for each in axes[weight] if each not in axes[other]]
        columns = [each for each in axes[weight] if each in summed]
        if isinstance(parts[weight].state, Weight) and len(rows) == len(columns) == 1 and len(axes[weight]) == 2:
            rest = axes[other].replace(columns[0], "")
            matrix = parts[weight] if axes[weight][0] == rows[0] else transposed(parts[weight])
            made = mapped(call.system, arranged(parts[other], axes[other], rest + columns[0]), matrix, None)
            return _arranged(made, rest + rows[0], out)
    full = out + "".join(summed)
    first, second = (arranged(each, letters, full) for each, letters in zip(parts, axes, strict=True))
    shape = torch.broadcast_shapes(first.number.shape, second.number.shape)
    state = times(call, first, second, shape)
    for _ in summed:
        if not isinstance(state, Value):
            raise NoRule
        state = summed_over(call.system, state, state.datum.dim() - 1)
    return state


def arranged(operand: Operand, letters: str, order: str) -> Operand:
    """Order the axes, with new ones of size one for letters that the tensor lacks."""
    places = [letters.index(each) for each in order if each in letters]

    def laid(tensor: Tensor) -> Tensor:
        made = tensor.permute(*places, *range(len(letters), tensor.dim()))
        for at, each in enumerate(order):
            made = made if each in letters else made.unsqueeze(at)
        return made

    return operand.rearranged(laid)


def _arranged(value: Value, letters: str, order: str) -> State:
    return arranged(Operand(value.datum, value), letters, order).state
