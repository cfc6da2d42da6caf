r"""Scores of the newest rows kept as a running sum, a query × key matrix: for decoding.

    R_m = R_{m-1} + s Q_m K_mᵀ,        R_0 = mask (0 where a row may see a key, -inf elsewhere)
    P_m = softmax(r_m R_m + bias)

Each layer adds one product, whatever its depth, where implementations without a matrix compute all m products again. This
needs one weight s r_m for all layers of the sum. The mask is in the sum from the start: -inf stays -inf, and no
derivative passes it, since its probability is zero. With `query` rows only, as in decoding, nothing is quadratic.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.grouped_attention.layerwise import HeldScores
from addnorm.kernels.grouped_attention.masks import band
from addnorm.kernels.grouped_attention.problem import AttentionProblem
from addnorm.kernels.grouped_attention.reference import bias_matrix


class RunningSum(HeldScores):
    """Adds every layer's scores to one sum. Each problem must give all of its terms the same weight, and have no padding.

    Args:
        keep: whether `attend_again` will be called.
    """

    def __init__(self, *, keep: bool) -> None:
        super().__init__(keep=keep)
        self._total: Tensor | None = None
        self._scale = 1.0
        """Factor of every layer's product in the sum."""

    def scores(self, problem: AttentionProblem, next_terms: int) -> Float[Tensor, "batch heads query key"]:
        weight = problem.weights if isinstance(problem.weights, float) else problem.weights[0, 0, -1]
        if self._total is None:
            self._scale = weight if isinstance(weight, float) else 1.0
        self._total = running_scores(problem, self._total, scale=self._scale)
        scores = _times(self._total, weight / self._scale)
        return scores if problem.bias is None else scores + bias_matrix(problem, problem.bias)


def running_scores(
    problem: AttentionProblem, before: Float[Tensor, "batch heads query key"] | None, *, scale: float
) -> Float[Tensor, "batch heads query key"]:
    """The running sum with one more layer's scores.

    Args:
        problem: whose last term is added.
        before: the sum of the layers so far; None at the first.
        scale: factor of every layer's product.
    """
    p = problem
    # [batch * kv_heads, group * query, head_dim]
    grouped = p.queries[-1].unflatten(1, (p.kv_heads, -1)).flatten(2, 3).flatten(0, 1)
    if before is not None:
        start = before.view(p.batch * p.kv_heads, -1, p.key)
    else:
        start = grouped.new_zeros(p.query, p.key)
        seen = band(p, slice(0, p.query), slice(0, p.key))
        if seen is not None:
            start = start.masked_fill(~seen, float("-inf"))
        start = start.repeat(p.group, 1)
    total = torch.baddbmm(start, grouped, p.keys[-1].flatten(0, 1).mT, alpha=scale)
    return total.view(p.batch, p.heads, p.query, p.key)


def _times(
    total: Float[Tensor, "batch heads query key"], ratio: float | Float[Tensor, ""]
) -> Float[Tensor, "batch heads query key"]:
    if isinstance(ratio, Tensor):  # its gradient would meet zero times infinity
        hidden = total == float("-inf")
        return (total.masked_fill(hidden, 0.0) * ratio).masked_fill(hidden, float("-inf"))
    return total if ratio == 1.0 else total * ratio
