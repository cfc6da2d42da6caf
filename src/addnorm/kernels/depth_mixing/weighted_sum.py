"""A sum of sources, each times one number, or one number per position, without a copy of the sources side by side."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.kernels.depth_mixing.two_forms import Gradients, TwoForms, spans

Vectors = Float[Tensor, "*axes width"]


def weighted_sum(weights: Float[Tensor, "sources *positions"], vectors: Sequence[Vectors]) -> Vectors:
    """Add up the sources, in their own precision.

    Args:
        weights: one number of each source, or one number per position.
        vectors: the sources.
    """
    return _SUM(weights.to(vectors[0].dtype), *vectors)


class _WeightedSum(TwoForms):
    def plain(self, weights: Tensor, *vectors: Tensor) -> Tensor:
        pattern = "n,n...->..." if weights.ndim == 1 else "n...,n...d->...d"
        return torch.einsum(pattern, weights, torch.stack(vectors))

    def fast(self, weights: Tensor, *vectors: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        rows, factors = _rows(vectors), _factors(weights, vectors[0])
        out = torch.empty_like(rows[0])
        for part in spans(out):
            total = torch.mul(rows[0][part], factors[0][part], out=out[part])
            for source, factor in zip(rows[1:], factors[1:], strict=True):
                total.addcmul_(source[part], factor[part])
        return out.view(vectors[0].shape), ()

    def gradients(
        self, grad: Tensor, needed: Sequence[bool], kept: tuple[Tensor, ...], weights: Tensor, *vectors: Any
    ) -> Gradients:
        rows, factors = _rows(vectors), _factors(weights, vectors[0])
        above = grad.reshape(rows[0].shape)
        d_factors = above.new_empty(len(rows), len(above))
        d_rows = [torch.empty_like(above) if is_needed else None for is_needed in needed[1:]]
        product = above.new_empty(max(len(above[part]) for part in spans(above)), above.shape[1])
        for part in spans(above):
            here = above[part]
            for source, factor, d_factor, d_row in zip(rows, factors, d_factors, d_rows, strict=True):
                if needed[0]:
                    torch.sum(torch.mul(source[part], here, out=product[: len(here)]), dim=1, out=d_factor[part])
                if d_row is not None:
                    torch.mul(here, factor[part], out=d_row[part])
        d_weights = None
        if needed[0]:
            d_weights = d_factors.sum(dim=1) if weights.ndim == 1 else d_factors.view(weights.shape)
        return d_weights, *(None if d_row is None else d_row.view(grad.shape) for d_row in d_rows)


def _rows(vectors: Sequence[Tensor]) -> list[Tensor]:
    return [vector.reshape(-1, vector.shape[-1]) for vector in vectors]


def _factors(weights: Tensor, vector: Tensor) -> Tensor:
    """[sources, position, 1]"""
    positions = vector.numel() // vector.shape[-1]
    by_position = weights[:, None].expand(-1, positions) if weights.ndim == 1 else weights.flatten(1)
    return by_position.unsqueeze(-1)


_SUM = _WeightedSum()
