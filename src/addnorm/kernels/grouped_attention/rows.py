"""Attention of the newest positions over all positions, as decoding needs it: each layer's raw scores are kept.

A layer's problem sums the scores of several layers. Its own product Q Kᵀ is computed here once; later layers reuse it. The
matrices have `query` rows, so nothing is quadratic in the length.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.grouped_attention.layerwise import HeldScores
from addnorm.kernels.grouped_attention.masks import visible
from addnorm.kernels.grouped_attention.problem import AttentionProblem
from addnorm.kernels.grouped_attention.reference import bias_matrix


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
