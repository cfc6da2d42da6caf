"""Estimate of an audit's memory and time, from one call of the model.

    memory    17 bytes per parameter: the float32 model, a copy in float64, the null space (`memory.py`)
              + the largest of what exists one after the other:
                  9 per parameter: a rewritten model and its null space
                  8 per number of all activations, which a gradient keeps, and of the largest activation and its
                      gradient, twice for each gradient that is computed at once
                  8 per number of the largest map, three times
    time      weights are drawn and perturbed; about 30 calls in float64; one triangular factor per weight

A map is large where a bias moves the entries of an axis differently: behind a class token, or in a padded convolution.
The coefficients were fitted to the processor seconds of BERT and ViT (`benchmarks/audit_speed.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from addnorm.redundancy.execution.copies import device_of
from addnorm.redundancy.execution.inputs import bind, cloned
from addnorm.redundancy.execution.memory import model_bytes, rewrite_bytes
from addnorm.redundancy.execution.operation_names import name_of

_FLOAT64 = 8
_COUNTED = 1024
"""Number of biases up to which gradients are computed 64 at once; above, one by one."""
_SMALL = 10**8
"""Bytes of activations and maps that every process has to spare; fewer are not counted."""
_MAP_COPIES = 3
_LARGEST_MAP = 2**27
_CALLS = 30
_SECONDS_PER_PARAMETER = 6e-8
_SECONDS_PER_PRODUCT = 1e-10
_SECONDS_PER_FACTOR = 2.2e-10
"""Per multiplication in the factor of a weight [m, n], n <= m: m n² of them."""
_EXPORT_S = 1.5


@dataclass(frozen=True, kw_only=True)
class AuditCost:
    """An audit's estimated peak memory, the model included, and its time on one processor core."""

    bytes: int
    seconds: float


class _Work(TorchDispatchMode):
    """Sums the sizes of one call's results."""

    supports_higher_order_operators = True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """True: flex_attention compiles itself, which torch allows under such modes alone."""
        return True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = self.largest = self.largest_map = self.products = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        op = name_of(func)
        given = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() not in given:  # views take no memory
                self.numbers += leaf.numel()
                self.largest = max(self.largest, leaf.numel())
        if isinstance(out, Tensor) and out.dim() > 2 and out.shape[0]:
            self._note(op, args, out)
        elif isinstance(out, Tensor) and out.dim() == 2 and op in ("mm", "addmm"):
            self.products += out.numel() * args[-1].shape[0]
        return out

    def _note(self, op: str, args: tuple[Any, ...], out: Tensor) -> None:
        one = out.numel() // out.shape[0]
        if op in ("bmm", "matmul"):
            self.products += out.numel() * args[0].shape[-1]
        elif op == "convolution":
            weight = args[1]
            self.products += out.numel() * weight[0].numel()
            if any(args[4]):
                self.largest_map = max(self.largest_map, weight.shape[1] * one)
        elif op == "cat" and len(args) > 1 and args[1] % out.dim() not in (0, out.dim() - 1):
            self.largest_map = max(self.largest_map, out.shape[-1] * one)


def audit_cost(model: nn.Module, inputs: object, *, biases: int) -> AuditCost | None:
    """Estimate an audit's cost by one call of the model.

    Args:
        model: the model, in evaluation mode; it is called once.
        inputs: as for `audit`.
        biases: number of tracked scalars.

    Returns:
        None if the call fails, which the audit will report.
    """
    given, work = cloned(bind(inputs)), _Work()
    try:
        with torch.no_grad(), torch.random.fork_rng([]), work:
            model(*given.args, **given.kwargs)
    except Exception:  # noqa: BLE001 - a model may raise anything on inputs that do not fit it
        return None
    at_once = 64 if biases <= _COUNTED else 1
    activations = _FLOAT64 * (work.numbers + 2 * at_once * work.largest)
    maps = _FLOAT64 * _MAP_COPIES * min(work.largest_map, _LARGEST_MAP) if biases > _COUNTED else 0
    factors = sum(
        max(each.shape[0], each[0].numel()) * min(each.shape[0], each[0].numel()) ** 2
        for module in model.modules()
        if isinstance(module, nn.Linear)
        for each in module.parameters(recurse=False)
        if each.dim() == 2
    )
    seconds = (
        _EXPORT_S
        + _SECONDS_PER_PARAMETER * sum(each.numel() for each in model.parameters())
        + _CALLS * 2 * _SECONDS_PER_PRODUCT * work.products
        + _SECONDS_PER_FACTOR * factors
    )
    rewrite = rewrite_bytes(model)
    # Gradients and maps come one after the other, and before a rewrite: the largest of the three counts.
    temporary = max(activations, maps) if activations + maps >= _SMALL else 0
    return AuditCost(bytes=model_bytes(model) - rewrite + max(rewrite, temporary), seconds=seconds)


def number_of_biases(model: nn.Module) -> int:
    """Count the entries of all vectors among the parameters, which nearly all are biases and norm scales."""
    device_of(model)
    return sum(each.numel() for each in model.parameters() if each.dim() == 1)
