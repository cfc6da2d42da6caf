"""Order of units and heads: permutations of rows or columns that turn one model's weights into another's.

A feed-forward layer computes the same function when its hidden units are stored in another order, and an attention layer
when its heads are. Each weight of both models is brought into a canonical order, its rows (or else its columns) sorted
as tuples of numbers; where the sorted weights are equal, the two orders give the permutation. A bias follows the output
axis of its module's weight. Nothing is assumed about which permutations go together: the reordered model has to compute
the same outputs, which the caller tests.
"""

import numpy as np
import torch
from torch import Tensor, nn

from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.parameter_uses import output_axis


def reordered(model: nn.Module, like: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """Return a copy of a model with its units in the order of another one's, and the names of the parameters that were
    permuted; none if no permutation of one axis makes a parameter equal."""
    copied = copy_of(model, None)
    ours = dict(like.named_parameters(remove_duplicate=False))
    permuted: dict[str, None] = {}
    orders: dict[int, list[Tensor]] = {}
    moving = list(copied.named_parameters())
    with torch.no_grad():
        for name, parameter in moving:
            permutation = _permutation(parameter, ours.get(name))
            if permutation is None:
                continue
            axis, order = permutation
            parameter.copy_(parameter.index_select(axis, order))
            permuted[name] = None
            orders.setdefault(len(order), []).append(order)
            owner, _, leaf = name.rpartition(".")
            module = copied.get_submodule(owner)
            bias = module._parameters.get(leaf.replace("weight", "bias"))
            if bias is not None and bias.shape == order.shape and axis == output_axis(module, parameter, len(bias)):
                bias.copy_(bias[order])
                permuted[f"{owner}.{leaf.replace('weight', 'bias')}".removeprefix(".")] = None
        for name, parameter in moving:
            other = ours.get(name)
            if parameter.dim() != 1 or name in permuted or other is None or _equal(parameter, other):
                continue
            # Vectors do not say which order is theirs (a norm's scale, a bias without a weight): each order of that
            # length is tried, and the outputs decide in the end.
            for order in orders.get(len(parameter), []):
                if _equal(parameter[order], other):
                    parameter.copy_(parameter[order])
                    permuted[name] = None
                    break
    return copied, tuple(permuted)


def _permutation(parameter: Tensor, other: Tensor | None) -> tuple[int, Tensor] | None:
    """The axis and the order in which a parameter's slices equal another one's; None if they are equal already, or equal in
    no order."""
    if other is None or parameter.dim() < 2 or other.shape != parameter.shape or _equal(parameter, other):
        return None
    for axis in (0, 1):
        given, wanted = (_slices(each, axis) for each in (parameter, other))
        # Equal rows are interchangeable, so any order of them among each other will do.
        from_order, to_order = np.lexsort(given.T), np.lexsort(wanted.T)
        if np.array_equal(given[from_order], wanted[to_order]):
            order = np.empty_like(from_order)
            order[to_order] = from_order
            return axis, torch.from_numpy(order)
    return None


def _slices(parameter: Tensor, axis: int) -> np.ndarray:
    slices = parameter.detach().cpu().resolve_conj().movedim(axis, 0)
    parts = torch.view_as_real(slices) if slices.is_complex() else slices
    numbers: np.ndarray = parts.flatten(1).double().numpy()
    return numbers


def _equal(parameter: Tensor, other: Tensor) -> bool:
    return torch.equal(parameter.detach().cpu(), other.detach().cpu())
