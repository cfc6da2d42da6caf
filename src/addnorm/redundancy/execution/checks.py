"""Checks of the model and its inputs before an audit."""

import os
import traceback
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from addnorm.errors import InputError
from addnorm.redundancy.execution.copies import call, device_of
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe, observed, unusual_form

_COMPUTED = frozenset(
    {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.bool}
    | {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64}
)
"""Types whose numbers can be copied and compared; eight-bit floats and packed integers cannot."""
_ADDNORM = Path(__file__).parents[2]
_NOT_A_MODEL = tuple(
    f"{each}{os.sep}" for each in (Path(torch.__file__).parent, _ADDNORM / "redundancy", _ADDNORM / "symmetry")
)
_QUANTISED = ("torch.ao.nn.quantized", "torch.nn.quantized")


def check_inputs(inputs: Inputs) -> None:
    """Refuse inputs that are not numbers.

    Raises:
        InputError: a tensor contains NaN.
    """
    for leaf in tree_leaves((inputs.args, dict(inputs.kwargs))):
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and bool(torch.isnan(leaf).any()):
            raise InputError(
                f"expected inputs without NaN, got {int(torch.isnan(leaf).sum())} of {leaf.numel()} numbers that are NaN in a "
                f"tensor of shape {list(leaf.shape)}. Give inputs that the model was made for."
            )


def check_model(model: Any) -> None:
    """Refuse a model that cannot be audited.

    Raises:
        InputError: not a module, a scripted or quantised one, several devices, or a parameter or buffer that is lazy,
            sparse, nested, quantised, without values, or contains NaN.
    """
    if not isinstance(model, nn.Module):
        raise InputError(
            f"expected a torch.nn.Module, got {type(model).__name__}. Build the model and pass the instance."
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(
            "expected a module of Python code, got a scripted or traced one, whose parameters cannot be moved one by one. "
            "Audit the module from which torch.jit made it."
        )
    for path, module in model.named_modules():
        if type(module).__module__.startswith(_QUANTISED):
            raise InputError(
                f"expected floating-point weights, got quantised ones in {path or 'the model'} ({type(module).__qualname__}). "
                "Audit the model before its quantisation."
            )
    named = [("parameter", *each) for each in model.named_parameters()] + [
        ("buffer", *each) for each in model.named_buffers()
    ]
    for kind, name, tensor in named:
        _check_kind(kind, name, tensor)
    device_of(model)
    for kind, name, tensor in named:
        _check_numbers(kind, name, tensor)


def _check_kind(kind: str, name: str, tensor: Tensor) -> None:
    """Refuse a parameter or buffer that has no numbers or stores them in a way that no copy in float64 can have.

    Raises:
        InputError: it is lazy, quantised, sparse, nested, or of a type in which torch does not compute.
    """
    if isinstance(tensor, nn.parameter.UninitializedParameter | nn.parameter.UninitializedBuffer):
        raise InputError(
            f"expected initialised {kind}s, got {name!r}, which is lazy. Run the model once before the audit."
        )
    form = unusual_form(tensor)
    if form == "quantised" or (not form and tensor.dtype not in _COMPUTED):
        raise InputError(
            f"expected numbers in which torch computes, got {kind} {name!r} in {str(tensor.dtype).removeprefix('torch.')}. "
            "Audit the model before its quantisation, or convert it, for example by model.to(torch.bfloat16)."
        )
    if form:
        raise InputError(
            f"expected dense {kind}s, got {name!r}, which is {form}. Assign a dense tensor, for example its to_dense()."
        )


def _check_numbers(kind: str, name: str, tensor: Tensor) -> None:
    """Refuse a parameter or buffer without values or with NaN.

    Raises:
        InputError: it has none, or NaN among them.
    """
    # After the kinds: a lazy or quantised tensor has its own sentence, and reading its values would raise another.
    if tensor.is_meta:
        raise InputError(f"expected {kind}s with values, got {name!r} on the meta device. Load or initialise it first.")
    if (tensor.is_floating_point() or tensor.is_complex()) and (count := int(torch.isnan(tensor).sum())):
        where = f"got NaN in {name!r} ({count} of {tensor.numel()} numbers)"
        raise InputError(
            f"expected finite weights, {where}. Audit a checkpoint from before the divergence."
            if kind == "parameter"
            else f"expected buffers without NaN, {where}. Load a checkpoint from before the divergence, or set them to what "
            "the model was made for."
        )


def is_of_model(filename: str) -> bool:
    """True for a file whose code belongs to a model, and not to torch or to an analysis that calls the model."""
    return not filename.startswith(_NOT_A_MODEL)


def check_call(model: nn.Module, inputs: Inputs, observe: Observe) -> Any:
    """Call a float64 copy of the model once and return its output.

    Raises:
        InputError: the inputs do not fit the model (its own error is quoted), or its output contains no finite number.
    """
    try:
        with torch.no_grad(), Float64Mode():
            output = call(model, inputs)
    except Exception as error:  # a model may raise anything on inputs that do not fit it
        raise failed_call(model, inputs, error) from error
    require_finite(output, observe)
    return output


def require_finite(output: Any, observe: Observe) -> None:
    """Refuse an output with a tensor of which no number is finite.

    Raises:
        InputError: it has one.
    """
    tensors = [each for each in observed(output, observe) if each.is_floating_point() and each.numel()]
    if not all(bool(torch.isfinite(each).any()) for each in tensors):
        raise InputError(
            "expected finite outputs, got none at these inputs, so nothing can be compared. Check the inputs."
        )


def failed_call(model: Any, inputs: Inputs, error: Exception) -> InputError:
    """The error for a call that raised: inputs that do not fit, or a fault of the model itself, whose place is named."""
    lines = str(error).strip().splitlines() or [""]
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if is_of_model(each.filename)]
    place = (own or frames)[-1]
    return InputError(
        f"expected a model that runs on its example inputs, got {type(error).__name__} at {place.filename}:{place.lineno} from "
        f"{type(model).__qualname__} on {describe(inputs)}: {lines[0].rstrip('.')}. Give inputs that fit the model, or mend it."
    )


def describe(inputs: Inputs) -> str:
    """Describe the shapes and dtypes of a call."""

    def one(value: Any) -> str:
        if isinstance(value, Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        return type(value).__name__

    return ", ".join(
        [one(arg) for arg in inputs.args] + [f"{key}={one(value)}" for key, value in inputs.kwargs.items()]
    )
