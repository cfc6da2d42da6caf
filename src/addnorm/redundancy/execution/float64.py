"""Running a float64 copy in float64 throughout, although the model's code casts to float32 in places."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_LOW = frozenset({torch.float32, torch.float16, torch.bfloat16})
_CASTS: dict[Any, Any] = {Tensor.float: Tensor.double, Tensor.half: Tensor.double, Tensor.bfloat16: Tensor.double}

_GROUPED = {getattr(torch, "_grouped_mm", None), getattr(torch.nn.functional, "grouped_mm", None)} - {None}


class Lift(TorchFunctionMode):
    """Inside, every cast to a lower floating-point type casts to float64, and every new tensor of such a type is converted.

    Models in the field compute norms, softmax and rotary tables in float32 whatever their weights are; a copy in float64 would
    round there, and an exact identity would look like a small difference. `eps` is the unit roundoff of the lowest precision
    that data still went through.
    """

    def __init__(self) -> None:
        super().__init__()
        self.eps = torch.finfo(torch.float64).eps

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args = [torch.float64 if _is_low(arg) else arg for arg in args]
        kwargs = {key: torch.float64 if _is_low(arg) else arg for key, arg in (kwargs or {}).items()}
        if func in _GROUPED and len(args) == 2 and _only_ends(kwargs):
            return _grouped(args[0], args[1], kwargs["offs"])
        made = _CASTS.get(func, func)(*args, **kwargs)
        if isinstance(made, Tensor) and made.dtype in _LOW:
            if made.requires_grad:
                self.eps = max(self.eps, torch.finfo(made.dtype).eps)
            return made.double()
        return made


def _only_ends(kwargs: dict[str, Any]) -> bool:
    return isinstance(kwargs.get("offs"), Tensor) and all(kwargs[name] is None for name in kwargs.keys() - {"offs"})


def _grouped(rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    """Rows up to each end times the next matrix, [row, in] x [group, in, out] -> [row, out]: torch's own knows no float64."""
    starts = [0, *ends.tolist()]
    parts = [rows[start:end] @ matrix for start, end, matrix in zip(starts, starts[1:], matrices, strict=False)]
    return torch.cat([*parts, rows.new_zeros(len(rows) - starts[-1], matrices.shape[2])])


def _is_low(value: Any) -> bool:
    return isinstance(value, torch.dtype) and value in _LOW
