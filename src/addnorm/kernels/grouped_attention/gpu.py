"""The door to the GPU kernels, which need Triton; it is imported when first asked for, since not every machine has it."""

import importlib.util

from torch import Tensor

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention.autograd_function import attend_by_passes
from addnorm.kernels.grouped_attention.problem import AttentionProblem


def triton(problem: AttentionProblem) -> Tensor:
    """The attended values by kernels that hold no query × key tensor, with first derivatives.

    Raises:
        InputError: Triton is not installed, or `kernel_refusal` says why not.
    """
    if (reason := kernel_refusal(problem)) is not None:
        raise InputError(reason)
    return attend_by_passes(problem, "triton")


def kernel_refusal(problem: AttentionProblem) -> str | None:
    """Why the kernels cannot do what is asked, as the message of an error; None where they can."""
    if importlib.util.find_spec("triton") is None:
        return (
            "impl='triton' needs the package triton, which torch brings along on Linux with CUDA. "
            "Install it, or use impl='streaming'."
        )
    from addnorm.kernels.grouped_attention.triton.passes import refusal

    return refusal(problem)
