"""The model's compiled form for training steps, or the reason why there is none.

The compiled form is tried in one forward and backward pass before the first step, so that a missing compiler, or a mechanism
that cannot be traced, is noticed there and not within a step. Evaluations use the model itself.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from addnorm.errors import AddnormError


def compiled(model: nn.Module, trial: Callable[[nn.Module], Tensor]) -> tuple[nn.Module, str | None]:
    """Compile a model in training mode as one graph.

    Args:
        model: the model.
        trial: computes the loss of one batch with the module that it is given.

    Returns:
        The compiled module and None; or the model and the reason why it is not compiled, in one line.

    Raises:
        AddnormError, OutOfMemoryError: the batch itself cannot be computed.
    """
    module = cast(nn.Module, torch.compile(model, fullgraph=True, dynamic=False))
    model.train()
    try:
        # Backward too: it is compiled when it first runs, and may fail alone.
        trial(module).backward()
    except (AddnormError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # noqa: BLE001  torch's tracer, its compiler and the system's compiler raise what they like
        return model, f"{type(error).__name__}: {_in_one_line(error)}"
    finally:
        # The trial must leave no trace: the first step would add its gradients to these.
        model.zero_grad(set_to_none=True)
    return module, None


def _in_one_line(error: Exception) -> str:
    """The error and torch's explanation of it, without its hints."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = 2 if lines and lines[0].endswith(":") else 1  # "backend='inductor' raised:" tells nothing alone
    kept = [*lines[:first], *(line for line in lines[first:] if line.startswith("Explanation:"))]
    return " ".join(kept)[:300] or "no message"
