"""Test of one operation: is its result an affine function of some of its arguments?"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

_LARGEST = 2**20
"""Largest number of entries for which the operation is tried."""
_STEPS = (1.0, -1.0, 16.0, -16.0)
"""Multiples of a random move. The far ones pass every threshold near the present numbers, on both sides."""
_ROUNDING = 2.0**-36


@torch.no_grad()
def is_affine(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], moving: Sequence[Tensor]) -> bool:
    """Test by moves whether f(x + s u) - f(x) = s (f(x + u) - f(x)), where x are the moving arguments together.

    No list of operations is needed, so that a selection, a mask, a solved system or a Fourier transform count alike. A
    cast to a lower precision counts as what it is in exact arithmetic: all numbers are float64. The result of a test that
    is wrong decides which parameters an audit moves; it proves nothing about them.

    Args:
        func: the operation.
        args: its positional arguments.
        kwargs: its keyword arguments.
        moving: the tensors among them that move.

    Returns:
        False also for an operation that does not compute in float64, or for more than 2^20 entries.

    Example:

        >>> x = torch.ones(3)
        >>> is_affine(torch.ops.aten.mul.Tensor, (x, torch.arange(3.0)), {}, [x])
        True
        >>> is_affine(torch.ops.aten.mul.Tensor, (x, x), {}, [x])
        False
    """
    if sum(each.numel() for each in moving) > _LARGEST:
        return False
    generator = torch.Generator().manual_seed(0)
    moves = {}
    for each in moving:
        # Moves about as large as the numbers, none near zero: a smaller one could stay on one side of a threshold and
        # look affine.
        size = max(1.0, float(each.detach().abs().max())) if each.numel() else 1.0
        moves[id(each)] = size * (0.5 + torch.rand(each.shape, generator=generator, dtype=torch.float64))
        moves[id(each)] *= 1 - 2 * torch.randint(0, 2, each.shape, generator=generator)
    try:
        before, once, *others = (_numbers(func, args, kwargs, moves, step) for step in (0.0, *_STEPS))
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return False  # not in float64, or not on copies
    if before is None or once is None:
        return False
    for step, after in zip(_STEPS[1:], others, strict=True):
        if after is None or after.shape != before.shape:
            return False
        # An affine function takes equal steps to equal differences. Four steps on both sides do not prove that, and
        # need not: a wrong answer changes which parameters are moved, and moved parameters are measured.
        error = (after - before) - step * (once - before)
        size = max(float(before.abs().max()), float(after.abs().max())) if before.numel() else 0.0
        if not bool((error.abs() <= _ROUNDING * max(size, 1e-300)).all()):
            return False
    return True


def _numbers(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], moves: dict[int, Tensor], step: float
) -> Tensor | None:
    """The operation's results at moved arguments, complex128 [entry]; None if there are others than numbers with a
    fraction, such as the truth values of a comparison."""

    def exact(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return _exact_type(value)
        if not isinstance(value, Tensor):
            return value
        # Copies, because the operation may write into its arguments.
        copied = value.detach().to("cpu", _exact_type(value.dtype), copy=True)
        move = moves.get(id(value))
        return copied if move is None else copied + step * move

    made = func(*tree_map(exact, args), **tree_map(exact, kwargs))
    results = [leaf for leaf in tree_leaves(made) if isinstance(leaf, Tensor)]
    if not results or not all(each.is_floating_point() or each.is_complex() for each in results):
        return None
    return torch.cat([each.reshape(-1).to(torch.complex128) for each in results])


def _exact_type(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype.is_floating_point else torch.complex128 if dtype.is_complex else dtype
