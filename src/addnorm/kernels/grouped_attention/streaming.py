"""Attention in torch operations without a query × key tensor: by tiles, or by rows for what tiles do not know."""

from torch import Tensor

from addnorm.kernels.grouped_attention.autograd_function import attend_by_passes
from addnorm.kernels.grouped_attention.by_rows import by_rows
from addnorm.kernels.grouped_attention.problem import AttentionProblem


def streaming(problem: AttentionProblem, budget: int | None = None) -> Tensor:
    """Compute the attended values, Float[Tensor, "batch heads query value_dim"]; `budget` replaces the one of tiles.py."""
    if problem.normalisation != "softmax" or problem.cap is not None or problem.column_keys:
        return by_rows(problem, budget)
    return attend_by_passes(problem, "streaming", budget)
