"""Numbers on the GPU of paper: every ATen operation is repeated by the CPU on the same memory, which is the host's.

What a GPU's branch of the code computes can so be compared with what the CPU's computes. Triton's kernels are not repeated;
their interpreter has tests of its own.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

# These make or describe memory; there is nothing to repeat.
_WITHOUT_NUMBERS = {
    *("_local_scalar_dense", "detach", "empty", "empty_strided", "empty_like", "new_empty", "is_pinned", "_pin_memory"),
    *("record_stream", "set_", "resize_"),
}


def on_host(tensor: Tensor) -> Tensor:
    """A CPU tensor over the memory of a tensor on the device."""
    storage = tensor.untyped_storage()
    if storage.nbytes() == 0:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    flat = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    empty = torch.empty(0, dtype=tensor.dtype)
    return empty.set_(flat, tensor.storage_offset(), tensor.shape, tensor.stride())


class Carbon(TorchDispatchMode):
    """Repeats operations. `unknown` names those that could not be, with the reason: their results are zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.unknown: dict[str, str] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        results = function(*args, **kwargs)
        given, made = tree_leaves((args, kwargs)), tree_leaves(results)
        name = function.overloadpacket.__name__
        if function.is_view or name in _WITHOUT_NUMBERS or not any(map(_is_on_device, (*given, *made))):
            return results
        repeated = self._repeated(function, args, kwargs)
        if repeated is None:
            return results
        written = {tensor.untyped_storage().data_ptr() for tensor in given if _is_on_device(tensor)}
        copies = iter([_copied(old, new, written, name) for old, new in zip(made, tree_leaves(repeated), strict=True)])
        return tree_map(lambda _: next(copies), results)

    def _repeated(self, function: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = tree_map(_hosted, args), tree_map(_hosted, kwargs)
        try:
            return function(*args, **kwargs)
        except NotImplementedError as error:  # an operation of GPUs alone
            if function in decomposition_table:
                return decomposition_table[function](*args, **kwargs)
            self.unknown[str(function)] = str(error)[:100]
        except RuntimeError as error:
            self.unknown[str(function)] = str(error)[:100]
        return None


def _is_on_device(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_cuda


def _hosted(value: Any) -> Any:
    if _is_on_device(value):
        return on_host(value)
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value


def _copied(old: Any, new: Any, written: set[int], name: str) -> Any:
    """What the caller gets: the device's tensor with the CPU's numbers."""
    if not isinstance(old, Tensor):
        return new
    if not old.is_cuda:
        return old.copy_(new) if old.shape == new.shape and not name.endswith("_") else old
    if new is None or old.untyped_storage().data_ptr() in written:  # in place: the CPU wrote the same memory
        return old
    if old.shape != new.shape:  # a shape that depends on numbers, such as nonzero's
        old = torch.empty(new.shape, dtype=new.dtype, device="cuda")
    if old.numel():
        on_host(old).copy_(new)
    return old


@contextmanager
def carbon() -> Iterator[Carbon]:
    """Repeat every operation of a block. Backward passes run in this thread, where they are seen; attention is torch's own."""
    threads, convolutions = torch.autograd.is_multithreading_enabled(), torch.backends.cudnn.enabled
    torch.autograd.set_multithreading_enabled(False)
    torch.backends.cudnn.enabled = False
    try:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), Carbon() as mode:
            yield mode
    finally:
        torch.autograd.set_multithreading_enabled(threads)
        torch.backends.cudnn.enabled = convolutions
