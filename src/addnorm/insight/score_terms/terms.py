r"""Four terms and their sum, averaged over the pairs of each distance, sample by sample.

Invariant: at every pair of positions the four terms add up to the score that the model computes. It is checked at every pair,
not on averages. Both computations of the score differ by rounding alone, which is at most

    K u |q|'^T |k|' s,        K = 2 (2 (n + 6) + d_k + 6)

with u the unit round-off of the model's dtype, n the summands of one entry of q, |q|' the absolute sums behind each entry of
the rotated q, and s the scale: n + 2 roundings for a projection with its bias, 4 for the rotation,
d_k + 6 for the product and the sum of terms, for q and k, in both computations.

Memory: a block of query rows by all keys, per sample; linear in the length.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from addnorm.errors import InputError
from addnorm.insight.score_terms.parts import ScoreFactors

TERMS = ("qRk", "aRk", "qRb", "aRb")
"""q^T R k, a^T R k, q^T R b, a^T R b."""
_ROWS = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class ByDistance:
    """One layer's terms."""

    layer: int
    first: int
    """Distance (query position minus key position) of the first entry."""
    terms: Float64[Tensor, "sample term heads distance"]
    """Mean of each term over the pairs of a sample at each distance; the terms in the order of `TERMS`."""
    real: Float64[Tensor, "sample heads distance"]
    """The same of the scores that the model computes."""
    largest_error: float
    """Largest difference between the sum of the terms and the model's score, over all pairs."""
    rounding: float
    """Largest value of the bound above in this layer."""


def terms_of(parts: ScoreFactors, *, causal: bool) -> ByDistance:
    """Compute a layer's terms by distance.

    Args:
        parts: factors of the layer's scores.
        causal: True to use distances of 0 and more only.

    Raises:
        InputError: at some pair the terms do not add up to the model's score.
    """
    samples, heads, seq, _ = parts.query.shape
    first = 0 if causal else 1 - seq
    span = seq - first
    (query, query_bias), (key, key_bias) = parts.turned()
    left = torch.stack((query, query_bias, query, query_bias))  # [term, sample, heads, seq, head_dim]
    right = torch.stack((key, key, key_bias, key_bias))
    real_left, real_right = parts.attended_query.double(), parts.repeated(parts.attended_key).double()
    bound_left, bound_right = parts.turned_sizes()
    factor = _roundings(parts) * torch.finfo(parts.attended_query.dtype).eps / 2
    totals = left.new_zeros(samples, len(TERMS) + 1, heads, span)
    counts = left.new_zeros(span)
    largest = rounding = 0.0
    column = torch.arange(seq, device=left.device)
    for start in range(0, seq, _ROWS):
        rows = slice(start, min(start + _ROWS, seq))
        distance = column[rows, None] - column
        seen = distance >= first
        place = (distance - first)[seen]
        counts.index_add_(0, place, torch.ones_like(place, dtype=counts.dtype))
        for sample in range(samples):
            four = (
                left[:, sample, :, rows] @ right[:, sample].mT * parts.scale[:, None, None]
            )  # [term, heads, rows, seq]
            real = real_left[sample, :, rows] @ real_right[sample].mT * parts.scale[:, None, None]
            error = (four.sum(0) - real).abs()[:, seen]
            bound = (
                bound_left[sample, :, rows] @ bound_right[sample].mT * (factor * parts.scale.abs()[:, None, None])
            )[:, seen]
            # At every pair, not on averages over a distance, in which errors of both signs would cancel. Written so
            # that NaN fails.
            if not bool((error <= bound).all()):
                raise InputError(_no_sum(parts.layer, error, bound))
            largest, rounding = max(largest, float(error.max())), max(rounding, float(bound.max()))
            totals[sample].index_add_(-1, place, torch.cat((four, real[None]))[..., seen])
    means = totals / counts
    return ByDistance(
        layer=parts.layer,
        first=first,
        terms=means[:, :-1],
        real=means[:, -1],
        largest_error=largest,
        rounding=rounding,
    )


def _roundings(parts: ScoreFactors) -> int:
    """Return K of the bound."""
    return 2 * (2 * (parts.summands + 6) + parts.query.shape[-1] + 6)


def _no_sum(layer: int, error: Tensor, bound: Tensor) -> str:
    at = int((error - bound).nan_to_num(torch.inf).argmax())
    return (
        f"the four terms must add up to the model's scores: in layer {layer} they differ by {float(error.flatten()[at]):.3g}, "
        f"rounding explains {float(bound.flatten()[at]):.3g}. Between projection and score this model does more than add "
        "a bias and rotate (a norm on q or k, a clip), so its scores have no such terms."
    )
