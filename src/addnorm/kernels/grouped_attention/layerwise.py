"""Attention of all layers of one forward pass: what an implementation may keep from one layer for the next.

Each layer's problem has the queries and keys of every layer whose scores it sums. `SeparateLayers` computes each layer from
them alone. Where scores are held as matrices, one of two sums saves the products of earlier layers: the raw scores of each
layer (rows.py) or one running sum (running.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.grouped_attention.api import solve
from addnorm.kernels.grouped_attention.arguments import with_value
from addnorm.kernels.grouped_attention.column import attended_column, column_scores, kept
from addnorm.kernels.grouped_attention.normalisation import attention_of
from addnorm.kernels.grouped_attention.problem import AttentionProblem

Values = Float[Tensor, "layers batch kv_heads key value_dim"]
Attended = Float[Tensor, "batch heads query value_dim"]


class LayerwiseAttention(ABC):
    """Attention of one forward pass, called once per layer in order of depth.

    Args:
        keep: whether `attend_again` will be called; each layer's problem or probabilities are then kept.
    """

    def __init__(self, *, keep: bool) -> None:
        self.keep = keep

    @abstractmethod
    def attend(self, problem: AttentionProblem, *, next_terms: int) -> Attended:
        """The next layer's attended values.

        Args:
            problem: of that layer; the layer's own queries and keys are the last term.
            next_terms: number of terms of the layer after it.
        """

    @abstractmethod
    def attend_again(
        self, layers: Sequence[int], values: Values
    ) -> Float[Tensor, "layers batch heads query value_dim"]:
        """The attention that earlier layers computed, applied to other values: one tensor per layer."""


class SeparateLayers(LayerwiseAttention):
    """Every layer by itself, with an implementation of `attend`.

    Args:
        impl: name of the implementation.
        keep: whether `attend_again` will be called.
    """

    def __init__(self, impl: str, *, keep: bool) -> None:
        super().__init__(keep=keep)
        self.impl = impl
        self._problems: list[AttentionProblem] = []

    def attend(self, problem: AttentionProblem, *, next_terms: int) -> Attended:
        if self.keep:
            self._problems.append(problem)
        return solve(problem, self.impl)

    def attend_again(
        self, layers: Sequence[int], values: Values
    ) -> Float[Tensor, "layers batch heads query value_dim"]:
        problems = [self._problems[layer] for layer in layers]
        values = values.to(problems[0].queries[0].dtype)  # under autocast vmap leaves a linear with a bias in float32
        return solve_many(problems, values, self.impl)


def solve_many(
    problems: Sequence[AttentionProblem], values: Values, impl: str
) -> Float[Tensor, "layers batch heads query value_dim"]:
    """Every problem with other values, as one call where every problem has one term and all have the same weight."""
    first = problems[0]
    foldable = all(
        len(p.queries) == 1
        and p.bias is None
        and isinstance(p.weights, float)
        and p.weights == first.weights
        and p.sliding_window == first.sliding_window
        and (p.sinks is None) == (first.sinks is None)
        for p in problems
    )
    if not foldable:
        return torch.stack([solve(with_value(p, v), impl) for p, v in zip(problems, values, strict=True)])
    # Layers become heads: [batch, layers * heads, seq, head_dim].
    folded = replace(
        first,
        queries=(torch.cat([p.queries[0] for p in problems], dim=1),),
        keys=(torch.cat([p.keys[0] for p in problems], dim=1),),
        sinks=None if first.sinks is None else torch.cat([p.sinks for p in problems if p.sinks is not None], dim=1),
    )
    attended = solve(with_value(folded, values.transpose(0, 1).flatten(1, 2)), impl)
    return attended.unflatten(1, (len(problems), -1)).transpose(0, 1)


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
