r"""Functions from rows of scores to attention: softmax, softmax beside a sink, squared ReLU, softpick.

    softmax         exp(s) / sum_j exp(s_j)                 beside a sink with score t: exp(s) / (exp(t) + sum_j exp(s_j))
    squared ReLU    relu(s)^2 / number of visible keys
    softpick        relu(exp(s) - 1) / (sum_j |exp(s_j) - 1| + 1e-6)

A score of -inf is a key that the row does not see. A row that sees none has no attention.

Why softpick: rows need not add up to one, so that a head that finds nothing attends to nothing, instead of to a first token,
and weights are exactly zero where scores are negative, which still count in the divisor.

Source: Hua et al. 2022, arXiv:2202.10447, and So et al. 2021, arXiv:2109.08668 (squared ReLU); Zuhri et al. 2025, "Softpick",
arXiv:2504.20966 (its eq. 3 and 4).
Differs from the source: squared ReLU is divided by the keys that the row sees, not by the sequence's; softpick is scaled by
exp(-max(0, s)) instead of exp(-max s), which overflows where all scores are very negative, eps is scaled as well, so that it
does not depend on the largest score, and exp(s) - 1 is computed without cancellation.
"""

import torch
from torch import Tensor

from addnorm.kernels.grouped_attention.problem import AttentionProblem, by_row

SOFTPICK_EPS = 1e-6
"""Added to the sum of softpick; the source's."""


def attention_of(problem: AttentionProblem, scores: Tensor) -> Tensor:
    """Turn rows of scores into attention, Float[Tensor, "batch heads query key"]."""
    p = problem
    if p.sinks is not None:
        return softmax_beside(scores, p.sinks)
    if p.normalisation == "softmax" and ((p.padding is None and p.bias is None) or p.column_keys):
        return scores.softmax(
            -1
        )  # every row sees its own position or column, and an audit sees that rows add up to one
    if p.normalisation == "softmax":
        alive = (scores > float("-inf")).any(-1, keepdim=True)
        return scores.masked_fill(~alive, 0.0).softmax(-1) * alive
    return weigh(scores) if p.normalisation == "squared_relu" else softpick(scores)


def softmax_beside(scores: Tensor, sinks: Tensor) -> Tensor:
    """Softmax of every row of scores and its sink, without the sink's own share: exp(s) / (exp(sink) + Σ exp(s))."""
    further = by_row(sinks).to(scores.dtype).expand(*scores.shape[:3], 1)
    return torch.cat([scores, further], -1).softmax(-1)[..., :-1]


def weigh(scores: Tensor) -> Tensor:
    """Turn scores into attention, row by row: relu(score)² over the number of scores that are not -inf."""
    seen = (scores > float("-inf")).sum(-1, keepdim=True).clamp(min=1)
    return scores.relu().square() / seen


def softpick(scores: Tensor) -> Tensor:
    """Turn scores into attention, row by row: relu(exp(score) - 1) over the sum of |exp(score) - 1|."""
    seen = scores.masked_fill(scores == float("-inf"), 0.0)  # of which exp - 1 is zero
    positive = seen.relu()
    largest = positive.amax(-1, keepdim=True).detach()
    # |exp(s) - 1| = exp(relu(s)) (1 - exp(-|s|)), times exp(-largest): no factor is above one.
    sizes = torch.exp(positive - largest) * -torch.expm1(-seen.abs())
    total = sizes.sum(-1, keepdim=True) + SOFTPICK_EPS * torch.exp(-largest)
    return sizes.masked_fill(seen < 0, 0.0) / total
