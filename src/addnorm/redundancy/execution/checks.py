"""Checks of the model and its inputs before an audit."""

from typing import Any

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.copies import call, device_of
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe, observed


def check_model(model: Any) -> None:
    """Refuse a model that cannot be audited.

    Raises:
        InputError: not a module, an uninitialised parameter, several devices, or NaN among the weights.
    """
    if not isinstance(model, nn.Module):
        raise InputError(
            f"expected a torch.nn.Module, got {type(model).__name__}. Build the model and pass the instance."
        )
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise InputError(
                f"expected initialised parameters, got {name!r}, which is lazy. Run the model once before the audit."
            )
    device_of(model)
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and bool(torch.isnan(parameter).any()):
            raise InputError(
                f"expected finite weights, got NaN in {name!r}. Audit a checkpoint from before the divergence."
            )


def check_call(model: nn.Module, inputs: Inputs, observe: Observe) -> tuple[Tensor, ...]:
    """Call a float64 copy of the model once and return the observed tensors.

    Raises:
        InputError: the inputs do not fit the model (its own error is quoted), or its output contains no finite number.
    """
    try:
        with torch.no_grad(), Float64Mode():
            output = call(model, inputs)
    except Exception as error:  # a model may raise anything on inputs that do not fit it
        lines = str(error).strip().splitlines() or [""]
        raise InputError(
            f"expected inputs that fit {type(model).__qualname__}, got {describe(inputs)}: it raised {type(error).__name__}: "
            f"{lines[0]}"
        ) from error
    tensors = observed(output, observe)
    if not all(
        bool(torch.isfinite(tensor).any()) for tensor in tensors if tensor.is_floating_point() and tensor.numel()
    ):
        raise InputError(
            "expected finite outputs, got none at these inputs, so nothing can be compared. Check the inputs."
        )
    return tensors


def describe(inputs: Inputs) -> str:
    """Describe the shapes and dtypes of a call."""

    def one(value: Any) -> str:
        if isinstance(value, Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        return type(value).__name__

    return ", ".join(
        [one(arg) for arg in inputs.args] + [f"{key}={one(value)}" for key, value in inputs.kwargs.items()]
    )
