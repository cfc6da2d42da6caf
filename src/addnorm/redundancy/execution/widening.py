"""Running a model in float64 without a copy of it in float64: every weight is widened where an operation reads it.

What must hold: the numbers are those of a float64 copy. Widening is exact, every operation gets its floating-point arguments
in float64, and nothing of the model is written. The price is one conversion per operation and run; the memory is that of the
largest weight, not of all.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from addnorm.redundancy.execution.disturbance import STEP
from addnorm.redundancy.execution.float64 import Lift

_LOOKUPS = frozenset({torch.nn.functional.embedding, torch.embedding})
"""Operations that read few rows of their first floating argument: the rows are widened, not the table."""


class Widen(Lift):
    """Inside, a model in any precision computes in float64."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func not in _LOOKUPS:
            args, kwargs = tree_map(self._wide, (tuple(args), dict(kwargs or {})))
        return super().__torch_function__(func, types, args, kwargs)

    def _wide(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.dtype == torch.float64:
            return value
        return self.wide(value)

    def wide(self, tensor: Tensor) -> Tensor:
        """A tensor of the model in float64."""
        return tensor.double()


class WidenDisturbed(Widen):
    """The same, with every weight that an operation reads times 1 ± `STEP`: as `disturbing` does to a copy."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def wide(self, tensor: Tensor) -> Tensor:
        value = super().wide(tensor)
        if isinstance(tensor, nn.Parameter):
            signs = torch.randint(0, 2, value.shape, generator=self._generator, dtype=torch.int8)
            value = value * (1 + STEP * (2 * signs - 1).double())
        return value
