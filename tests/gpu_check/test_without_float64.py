"""A device without float64, such as Apple's MPS, is given none: shown on the GPU of paper, which is taken for one."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from trained import Kind, kinds

import addnorm.kernels

KINDS = [kind for kind in kinds() if not kind.name.startswith("optimizer")]


class NoFloat64(TorchDispatchMode):
    """Refuses every operation that makes float64 on the device."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and tensor.is_cuda and tensor.dtype == torch.float64:
                raise TypeError(f"{function} made float64 on the device")
        return made


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_a_pass_makes_no_float64_on_the_device(kind: Kind) -> None:
    model = kind.model.build().to("cuda")
    tokens = torch.zeros(1, 8, dtype=torch.int64, device="cuda")
    with patch.object(addnorm.kernels, "WITHOUT_FLOAT64", {"cuda"}), NoFloat64():
        model(tokens)


def test_float64_on_the_device_is_caught() -> None:
    with pytest.raises(TypeError, match="made float64 on the device"), NoFloat64():
        torch.ones(2, device="cuda").double()
