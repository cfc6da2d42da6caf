"""Memory that operations allocate and free again, over time: what a step holds at its peak, without measuring a process; and
FLOPs of operations that torch does not count."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

# torch counts its fused attention on a GPU, not that of a CPU.
_FUSED_ON_CPU: dict[Any, Any] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda *shapes, **_: sdpa_flop_count(*shapes[:3]),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda *shapes, **_: sdpa_backward_flop_count(*shapes[:4])
    ),
}


class _NoModules:
    """In place of torch's tracker of modules, which has no part in a sum over all of them. Its hooks tie tensors in cycles, so
    that what recomputation frees lived on until the garbage collector came, and a plan showed more memory than a worker holds.
    """

    parents = ("Global",)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def flop_counter() -> FlopCounterMode:
    """Count the FLOPs of all modules together, beside a `LiveBytes` that it leaves alone."""
    counter = FlopCounterMode(display=False, custom_mapping=_FUSED_ON_CPU)
    counter.mod_tracker = _NoModules()  # type: ignore[assignment]
    return counter


class LiveBytes(TorchDispatchMode):
    """Follows every storage that is allocated inside it, until it is freed; memory of kernels of their own is not seen.

    Args:
        before: tensors that were there before, which do not count.
    """

    def __init__(self, before: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._changes: list[tuple[int, int]] = []
        """Number of a storage, and the bytes that it adds or, negative, frees; in order of time."""
        self._number_of = {tensor.untyped_storage()._cdata: -1 for tensor in before}
        """By the address of a storage that lives."""
        self._watching: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, Tensor):
                self._watch(value)
        return out

    def peak(self, without: Iterable[Tensor | None] = ()) -> int:
        """Return the largest number of bytes that lived at one time, those of some tensors that still live left out."""
        numbers = {self._number_of.get(tensor.untyped_storage()._cdata) for tensor in without if tensor is not None}
        now = most = 0
        for number, change in self._changes:
            if number not in numbers:
                now += change
                most = max(most, now)
        return most

    def _watch(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        address, size = storage._cdata, storage.nbytes()
        if address in self._number_of:
            return
        number = self._number_of[address] = len(self._changes)
        self._changes.append((number, size))

        def freed(_: Any) -> None:
            self._changes.append((number, -size))
            del self._number_of[address], self._watching[number]

        self._watching[number] = weakref.ref(storage, freed)
