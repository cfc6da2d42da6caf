"""Entry to the GPU kernels. Triton is imported at the first call, because it is not installed on every machine."""

import importlib.util

from torch import Tensor

from addnorm.errors import InputError
from addnorm.kernels.grouped_attention.autograd_function import attend_by_passes
from addnorm.kernels.grouped_attention.problem import AttentionProblem


def triton(problem: AttentionProblem) -> Tensor:
    """Compute the attended values by kernels without a query × key tensor, with first derivatives.

    Raises:
        InputError: Triton is not installed, or the problem is not supported; see `kernel_refusal`.
    """
    if (reason := kernel_refusal(problem)) is not None:
        raise InputError(reason)
    return attend_by_passes(problem, "triton")


def kernel_refusal(problem: AttentionProblem) -> str | None:
    """Return the error message for a problem that the kernels do not support; None if they do."""
    if importlib.util.find_spec("triton") is None:
        return (
            "impl='triton' needs the package triton, which torch installs on Linux with CUDA. "
            "Install it, or use impl='streaming'."
        )
    from addnorm.kernels.grouped_attention.triton.passes import refusal

    return refusal(problem)
