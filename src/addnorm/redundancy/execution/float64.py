"""Computation in float64 throughout, although a model casts to float32 in places or is stored in a lower precision."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from addnorm.redundancy.execution.perturbation import STEP

_LOWER = frozenset({torch.float32, torch.float16, torch.bfloat16})
_CASTS: dict[Any, Any] = {Tensor.float: Tensor.double, Tensor.half: Tensor.double, Tensor.bfloat16: Tensor.double}

_GROUPED = {getattr(torch, "_grouped_mm", None), getattr(torch.nn.functional, "grouped_mm", None)} - {None}
_LOOKUPS = frozenset({torch.nn.functional.embedding, torch.embedding})
"""Operations that read few rows of their first floating-point argument: the rows are converted, not the table."""


class GroupedMode(TorchFunctionMode):
    """Computes products in groups, as those of experts, in float64 too, for which torch has no kernel."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _GROUPED and len(args) == 2 and args[0].dtype == torch.float64 and _only_ends(kwargs):
            return _grouped(args[0], args[1], kwargs["offs"])
        return func(*args, **kwargs)


class Float64Mode(GroupedMode):
    """Replaces casts to a lower floating-point type by casts to float64, and converts every new tensor of such a type.

    Many models compute norms, softmax and rotary tables in float32 whatever the type of their weights. A copy in
    float64 would round there, and an exact identity would look like a small difference. `eps` is the unit roundoff of
    the lowest precision that data still passed through.
    """

    def __init__(self) -> None:
        super().__init__()
        self.eps = torch.finfo(torch.float64).eps

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        # Nearly every call of a model comes here, and few pass a type.
        if torch.dtype in map(type, args):
            args = [torch.float64 if _is_lower(arg) else arg for arg in args]
        if torch.dtype in map(type, kwargs.values()):
            kwargs = {key: torch.float64 if _is_lower(arg) else arg for key, arg in kwargs.items()}
        made = super().__torch_function__(_CASTS.get(func, func), types, args, kwargs)
        if isinstance(made, Tensor) and made.dtype in _LOWER:
            # Only where data pass through the lower precision. A table or mask made in float32 is what it is; its
            # rounding does not change from move to move.
            if made.requires_grad:
                self.eps = max(self.eps, torch.finfo(made.dtype).eps)
            return made.double()
        return made


class WideningMode(Float64Mode):
    """Computes in float64 with a model of any precision, without a float64 copy of it: an operation's arguments are
    converted when it reads them.

    The numbers are those of a float64 copy: the conversion is exact, every operation gets float64 arguments, and the
    model is not written. The cost is one conversion per operation and run; the memory is that of the largest weight.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # A vocabulary would be converted as a whole for a few rows.
        if func not in _LOOKUPS:
            args, kwargs = tree_map(self._widened, (tuple(args), dict(kwargs or {})))
        return super().__torch_function__(func, types, args, kwargs)

    def _widened(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.dtype == torch.float64:
            return value
        return self.widen(value)

    def widen(self, tensor: Tensor) -> Tensor:
        """Convert a tensor of the model to float64."""
        return tensor.double()


class PerturbedWideningMode(WideningMode):
    """As `WideningMode`, with every weight that an operation reads multiplied by 1 ± `STEP`, as `perturbed` does to a
    copy."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def widen(self, tensor: Tensor) -> Tensor:
        value = super().widen(tensor)
        if isinstance(tensor, nn.Parameter):
            signs = torch.randint(0, 2, value.shape, generator=self._generator, dtype=torch.int8)
            # In place, for large weights: 1 - STEP or, exactly, 1 + STEP. A parameter in float64 is not its own copy.
            factors = signs.double().mul_(2 * STEP).add_(1 - STEP)
            value = factors.mul_(value)
        return value


def _only_ends(kwargs: dict[str, Any]) -> bool:
    return isinstance(kwargs.get("offs"), Tensor) and all(kwargs[name] is None for name in kwargs.keys() - {"offs"})


def _grouped(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    """Rows up to each end times the next matrix, [row, in] x [group, in, out] -> [row, out]; torch's kernel lacks
    float64."""
    starts = [0, *ends.tolist()]
    parts = [rows[start:end] @ matrix for start, end, matrix in zip(starts, starts[1:], matrices, strict=False)]
    return torch.cat([*parts, rows.new_zeros(len(rows) - starts[-1], matrices.shape[2])])


def _is_lower(value: Any) -> bool:
    return isinstance(value, torch.dtype) and value in _LOWER
