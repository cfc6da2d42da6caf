"""Attention of all layers of one forward pass: what an implementation may keep from one layer for the next.

Each layer's problem has the queries and keys of every layer whose scores it sums. `SeparateLayers` computes each layer from
them alone. In decoding, where a layer's scores are a matrix of few rows, the products of earlier layers are kept: decoding.py.
In training, where length × length scores have to be undone and weighed: kept_scores.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.grouped_attention.api import solve
from addnorm.kernels.grouped_attention.arguments import with_value
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
