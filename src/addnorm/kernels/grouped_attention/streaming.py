"""Attention in torch operations that holds no query × key tensor: by tiles, or by rows where nothing is summed over a row."""

from torch import Tensor

from addnorm.kernels.grouped_attention.autograd_function import attend_by_passes
from addnorm.kernels.grouped_attention.problem import AttentionProblem
from addnorm.kernels.grouped_attention.squared_relu import squared_relu


def streaming(problem: AttentionProblem, budget: int | None = None) -> Tensor:
    """The attended values, Float[Tensor, "batch heads query value_dim"]; `budget` replaces the one of tiles.py."""
    if problem.normalisation == "squared_relu":
        return squared_relu(problem, budget)
    return attend_by_passes(problem, "streaming", budget)
