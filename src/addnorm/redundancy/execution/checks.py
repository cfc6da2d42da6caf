"""What an audit refuses before it starts, in one sentence each."""

from typing import Any

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.copies import call, device_of
from addnorm.redundancy.execution.float64 import Lift
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe, observed


def check_model(model: Any) -> None:
    """Refuse what cannot be audited before any work is done.

    Raises:
        InputError: no module, without parameters, on several devices, or with NaN among its weights.
    """
    if not isinstance(model, nn.Module):
        raise InputError(
            f"an audit needs a torch.nn.Module, not {type(model).__name__}. Build the model and pass the instance."
        )
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise InputError(f"parameter {name!r} is lazy and has no values yet. Run the model once before the audit.")
    device_of(model)
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and bool(torch.isnan(parameter).any()):
            raise InputError(
                f"weights must be numbers, but {name!r} holds NaN. Audit a checkpoint from before it diverged."
            )


def check_call(model: nn.Module, inputs: Inputs, observe: Observe) -> tuple[Tensor, ...]:
    """Run a float64 copy of the model once and return what is observed.

    Raises:
        InputError: the inputs do not fit the model (its own error is quoted), or what comes out is not finite.
    """
    try:
        with torch.no_grad(), Lift():
            output = call(model, inputs)
    except Exception as error:  # whatever a model raises on inputs that do not fit it
        said = str(error).strip().splitlines() or [""]
        raise InputError(
            f"the inputs do not fit the model: {type(model).__qualname__} raised {type(error).__name__}: {said[0]} "
            f"Given: {describe(inputs)}."
        ) from error
    found = observed(output, observe)
    if not all(bool(torch.isfinite(tensor).any()) for tensor in found):
        raise InputError(
            "the model returns no finite number at these inputs, so nothing can be compared. Check the inputs."
        )
    return found


def describe(inputs: Inputs) -> str:
    """The shapes and dtypes of a call, for messages."""

    def one(value: Any) -> str:
        if isinstance(value, Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        return type(value).__name__

    return ", ".join(
        [one(arg) for arg in inputs.args] + [f"{key}={one(value)}" for key, value in inputs.kwargs.items()]
    )
