r"""Attention of the newest positions over all positions, as decoding needs it: earlier layers' scores are kept as matrices.

The matrices have `query` rows, so nothing is quadratic in the length. `DecodingRows` keeps the raw scores of each layer that
the next one sums. `RunningSum` keeps one sum, where all terms of a layer have one weight s r_m:

    R_m = R_{m-1} + s Q_m K_mᵀ,        R_0 = mask (0 where a row may see a key, -inf elsewhere)
    P_m = softmax(r_m R_m + bias)

Each layer adds one product, whatever its depth, where implementations without a matrix compute all m products again. The mask
is in the sum from the start: -inf stays -inf, and no derivative passes it, since its probability is zero.
"""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.grouped_attention.column import attended_column, column_scores, kept
from addnorm.kernels.grouped_attention.layerwise import Attended, LayerwiseAttention, Values
from addnorm.kernels.grouped_attention.normalisation import attention_of
from addnorm.kernels.grouped_attention.problem import AttentionProblem, band, visible
from addnorm.kernels.grouped_attention.reference import bias_matrix


class HeldScores(LayerwiseAttention):
    """Base of the implementations that hold a layer's scores as a matrix."""

    def __init__(self, *, keep: bool) -> None:
        super().__init__(keep=keep)
        self._attention: list[Tensor] = []

    @abstractmethod
    def scores(self, problem: AttentionProblem, next_terms: int) -> Float[Tensor, "batch heads query key"]:
        """The summed scores with bias; what a row may not see is -inf."""

    def attend(self, problem: AttentionProblem, *, next_terms: int) -> Attended:
        scores = self.scores(problem, next_terms)
        if problem.column_keys:
            scores = torch.cat([scores, column_scores(problem).to(scores.dtype)], -1)
        plain = problem.normalisation == "softmax" and problem.sinks is None  # of rows that see their own key at least
        attention = torch.softmax(scores, dim=-1) if plain else attention_of(problem, scores)
        # A bias by distance is wider than narrow queries, and so is the score that it joined.
        attention = _dropped(problem, attention.to(problem.queries[0].dtype))
        if self.keep:
            self._attention.append(attention)
        attended = _weighted(attention[..., : problem.key], problem.value)
        return attended + attended_column(problem, attention[..., problem.key :]) if problem.column_keys else attended

    def attend_again(
        self, layers: Sequence[int], values: Values
    ) -> Float[Tensor, "layers batch heads query value_dim"]:
        return _weighted(torch.stack([self._attention[layer] for layer in layers]), values)


def _dropped(
    problem: AttentionProblem, attention: Float[Tensor, "batch heads query key"]
) -> Float[Tensor, "batch heads query key"]:
    """The attention without the entries that the problem's seed drops, the same ones as in every other implementation."""
    if problem.seed is None:
        return attention
    return attention * kept(problem, slice(0, problem.query), problem.key) / (1 - problem.dropout)


def _weighted(
    attention: Float[Tensor, "*layers batch heads query key"],
    value: Float[Tensor, "*layers batch kv_heads key value_dim"],
) -> Float[Tensor, "*layers batch heads query value_dim"]:
    """Attention times values; the query heads of a group share their values."""
    grouped = attention.unflatten(-3, (value.shape[-3], -1)).flatten(-3, -2)
    return torch.matmul(grouped, value).unflatten(-2, (-1, attention.shape[-2])).flatten(-4, -3)


class DecodingRows(HeldScores):
    """Keeps the raw scores of the layers that the next layer sums.

    Args:
        keep: whether `attend_again` will be called.
    """

    def __init__(self, *, keep: bool) -> None:
        super().__init__(keep=keep)
        self._raw: list[Tensor] = []

    def scores(self, problem: AttentionProblem, next_terms: int) -> Float[Tensor, "batch heads query key"]:
        p = problem
        self._raw.append(raw_scores(p.queries[-1], p.keys[-1]))
        terms = torch.stack(self._raw[-len(p.queries) :])
        self._raw = self._raw[-next_terms:]
        weights = torch.as_tensor(p.weights, dtype=terms.dtype, device=terms.device)
        if weights.ndim:  # "#batch #heads term" to "term #batch #heads 1 1"
            weights = weights.movedim(-1, 0)[..., None, None]
        scores = p.capped((terms * weights).sum(0))
        if p.bias is not None:
            scores = scores + bias_matrix(p, p.bias)
        seen = visible(p)
        return scores if seen is None else scores.masked_fill(~seen, float("-inf"))


def raw_scores(
    query: Float[Tensor, "batch heads query head_dim"], key: Float[Tensor, "batch kv_heads key head_dim"]
) -> Float[Tensor, "batch heads query key"]:
    """Q Kᵀ of every query head with its group's keys, without a scale."""
    grouped = query.unflatten(1, (key.shape[1], -1)).flatten(2, 3)
    return (grouped @ key.transpose(-1, -2)).unflatten(2, (-1, query.shape[2])).flatten(1, 2)


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
