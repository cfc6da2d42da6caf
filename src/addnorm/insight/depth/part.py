"""A read of a model as a sum over its sources, from which matrices and identities are made."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor
from torch.autograd import forward_ad

from addnorm.model.transformer import Transformer

SAME = 1e-9
"""Largest spread of a weight over positions that counts as rounding, in float64."""
TINY = 1e-300
"""Divisor in place of zero: a source or read of zeros has the weight zero."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """One read. The axes after `source` are [batch, seq, entries], or [batch, heads, seq, entries]."""

    name: str
    read: Float64[Tensor, "*place entries"]
    contributions: Float64[Tensor, "source *place entries"]
    sources: Float64[Tensor, "source *place entries"]
    """Vectors that the contributions are multiples of; zero where the read cannot have the source."""
    weights: Float64[Tensor, "source heads"] | None = None
    """Weights per head where they are known without looking at the contributions."""

    def shares(self) -> Float64[Tensor, " source"]:
        """Find the part of each source in the read: c·r / r·r, mean over positions."""
        c, r = self.contributions, self.read
        # Contributions add up to r, so their shares add up to one. A source that others cancel has a large c and a
        # share to match: positive and negative shares may exceed one.
        of_place = (c * r).sum(dim=-1) / r.square().sum(dim=-1).clamp_min(TINY)
        return of_place.flatten(1).mean(dim=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class DepthRow:
    """The row of a depth matrix, on the CPU."""

    weights: Float64[Tensor, "source heads position"]
    """One head where there are none, one position where the weights do not depend on it."""
    shares: Float64[Tensor, " source"]


def row_of(part: Part) -> DepthRow:
    """Find the weight of every source in a read at every position, and its share of the read."""
    if part.weights is not None:
        weights = part.weights[..., None]
    else:
        c, v = part.contributions, part.sources
        # The multiple of v that comes nearest to c, in the sense of least squares. Where the mechanism multiplies v by
        # one number it is that number; where it turns v, a matrix has no single weight, and this is its part along v.
        at_places = (c * v).sum(dim=-1) / v.square().sum(dim=-1).clamp_min(TINY)
        by_head = at_places.unsqueeze(2) if part.read.dim() == 3 else at_places  # [source, batch, heads, seq]
        weights = by_head.transpose(1, 2).flatten(2)
    return DepthRow(weights=weights.cpu(), shares=part.shares().cpu())


def attending_layers(model: Transformer) -> tuple[str, ...]:
    """Names of the layers that attend."""
    return tuple(map(str, range(model.spec.attention_shape.depth)))


@contextmanager
def forward_mode() -> Iterator[None]:
    """Forward-mode differentiation, in which dual tensors can be made."""
    with forward_ad.dual_level(), warnings.catch_warnings():
        # The first dual tensor makes torch load formulas of its own through a function that it has deprecated.
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.script` is deprecated", category=DeprecationWarning)
        yield


def tangent_of(value: Tensor) -> Tensor:
    """The tangent of a dual tensor, or zeros."""
    tangent = forward_ad.unpack_dual(value).tangent
    return torch.zeros_like(value) if tangent is None else tangent.clone()
