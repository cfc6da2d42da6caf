"""Roles of parameters by their use: which ones are factors of products, which are looked up, which gives the logits.

A layer of another library is no `torch.nn.Linear`, whose parameters' roles are known, but multiplies all the same. One pass is
watched; views of a parameter, such as its transpose, share its memory.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from addnorm.anatomy.recording import PRODUCTS, tensors
from addnorm.roles import ParameterRole, roles
from addnorm.study.foreign import logits_of


@torch.no_grad()
def roles_by_use(module: nn.Module, tokens: Tensor) -> dict[str, ParameterRole]:
    """Roles of the parameters whose modules and names do not tell them, and of the one that gives the logits.

    Args:
        module: maps tokens to logits.
        tokens: of one pass, [batch, seq].
    """
    with torch.random.fork_rng(devices=[]), _Watch() as watch:
        logits = logits_of(module, tokens)
    # The last product with the logits' size is the head; an earlier one of the same size, in a small model, is not.
    head = next((memory for memory, size in reversed(watch.products) if size == logits.shape[-1]), None)
    factors = {memory for memory, _ in watch.products}
    by_use: dict[str, ParameterRole] = {}
    for name, known in roles(module).items():
        parameter = module.get_parameter(name)
        memory = _memory(parameter)
        if known == "table" and memory in watch.looked_up:
            by_use[name] = "embedding"
        elif known == "table" and memory in factors:
            by_use[name] = "head" if memory == head else "hidden_matrix"
        elif known == "hidden_matrix" and memory == head:
            by_use[name] = "head"
    return by_use


class _Watch(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[int, int]] = []
        """Memory of a factor, and the size of the product's last axis."""
        self.looked_up: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func is F.embedding:
            self.looked_up.add(_memory(kwargs.get("weight", args[-1] if len(args) < 2 else args[1])))
        # What multiplies copies, such as the experts that Transformers' `batched_mm` gathers, is not recognised: a table.
        elif func in PRODUCTS:
            for factor in tensors((args, kwargs)):
                if factor.dim() > 1:
                    self.products.append((_memory(factor), out.shape[-1]))
        return out


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
