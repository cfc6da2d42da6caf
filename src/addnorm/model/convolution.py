r"""Short convolution: what attention projects is mixed with the same entries at the few positions before.

    y_t <- y_t + sum_{j=1}^{n-1} c_j * y_{t-j}        c_j one number per entry; c_j = 0 at initialisation

y is what the attention branch reads (`input`), or its queries, keys or values with their biases, before norms of heads and
rotation. A masked model has numbers for both sides, j = 1-n, ..., n-1 without 0. Positions that are padding, or lie outside the
sequence, count as zero. y_t itself has no number: its factor would only scale the matrix before.

Why: neighbours meet without a head that looks for them, as in copying after a pattern. With c = 0 it is the plain model. A key
bias shifts all keys alike except the first n - 1, so that it does not stay redundant.

Cost: n - 1 products per entry, no matrix. Decoding keeps the last n - 1 inputs of every convolution.

Source: Allen-Zhu 2025, "Physics of Language Models: Part 4.1" (canon layers), arXiv:2512.17351; keys and values as in
Transformers 5.23, https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/inkling2/modeling_inkling2.py.
Differs from the source: feed-forward branches and outputs have none; c starts at zero; no number for the own position and no
factor 1 / sqrt(n + 1), which the matrix before takes over; no weights that depend on the input.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.block import SitePlan
from addnorm.errors import InputError
from addnorm.fields import check_fields, require, require_at_least
from addnorm.model.cache import Cache
from addnorm.residual import ResidualSpec

__all__ = ["Convolution", "Convolved", "ShortConvolution", "build_convolutions", "require_convolution"]

Convolved = Literal["input", "query", "key", "value"]
"""Input of a convolution, by what attention makes of it.

Example:
    >>> of: Convolved = "key"
"""


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A convolution of a few positions before attention.

    Raises:
        InputError: fewer than two positions, or nothing or one thing twice that it acts on.

    Example::

        Convolution(positions=4, of=("query", "key", "value"))
    """

    positions: int = 4
    """n: positions that a result depends on, its own the last of them; of a masked model n - 1 on either side."""
    of: tuple[Convolved, ...] = ("key", "value")
    """Tensors that are convolved: the attention branch's input, its queries, keys or values."""

    def __post_init__(self) -> None:
        check_fields(self, "convolution")
        require_at_least(self, 2, "positions")
        require(self, "of", len(set(self.of)) == len(self.of) > 0, "different entries, one at least")


class ShortConvolution(nn.Module):
    """One convolution of one layer.

    Args:
        entries: of each position.
        offsets: the positions that it adds, relative to the own one.
        layer: number of attentions before it.
        of: what it acts on; with `layer` its place in a cache.
    """

    parameter_roles = {"weight": "vector"}

    def __init__(self, entries: int, offsets: Sequence[int], layer: int, of: Convolved) -> None:
        super().__init__()
        self.offsets, self.layer, self.of = tuple(offsets), layer, of
        self.weight = nn.Parameter(torch.zeros(len(self.offsets), entries))

    def forward(
        self, x: Float[Tensor, "batch seq entries"], padding: Bool[Tensor, "batch seq"] | None, cache: Cache | None
    ) -> Float[Tensor, "batch seq entries"]:
        before, after = max(0, -min(self.offsets)), max(0, *self.offsets)
        # A padded position is no neighbour. Left padding then gives what the sequence gives alone, whatever stands there.
        seen = x if padding is None else x.masked_fill(~padding[..., None], 0)
        # With a cache a model is causal, so that nothing comes after.
        padded = (
            F.pad(seen, (0, 0, before, after)) if cache is None else cache.preceded((self.layer, self.of), seen, before)
        )
        # Sums of shifted slices, and not conv1d, whose grouped form on a CPU loops over entries in float64 and wants
        # positions last. The slices are views, so that the backward pass keeps one tensor.
        for weight, offset in zip(self.weight.to(x.dtype), self.offsets, strict=True):
            x = x + weight * padded.narrow(1, before + offset, x.shape[1])
        return x


def build_convolutions(
    spec: Convolution | None, sizes: dict[Convolved, int], layer: int, *, causal: bool
) -> dict[Convolved, ShortConvolution]:
    """The convolutions of one layer, by what they act on.

    Args:
        spec: None for none.
        sizes: entries of what the layer has of its own.
        layer: number of attentions before it.
        causal: False for neighbours on both sides.
    """
    if spec is None:
        return {}
    back = [-distance for distance in range(1, spec.positions)]
    offsets = back if causal else back + [-offset for offset in back]
    return {of: ShortConvolution(sizes[of], offsets, layer, of) for of in spec.of if of in sizes}


def require_convolution(spec: Convolution, residual: ResidualSpec, block: str, site_plans: Sequence[SitePlan]) -> None:
    """Raises:
    InputError: a block with gated attention units, a residual that runs attention again on other inputs, or a convolved input
        beside a residual that gives queries, keys and values separate inputs.
    """
    if any(branch.body == "gated_attention_unit" for plan in site_plans for branch in plan.branches):
        raise InputError(
            f"convolution: expected null with block {block!r}, because one product makes all of a gated attention unit, got a "
            "convolution. Set convolution to null, or block to 'sequential'."
        )
    if residual.replays:
        raise InputError(
            f"convolution: expected null with residual {residual.kind!r}, because an earlier layer that runs again has other "
            "values, and which neighbours join them is not defined, got a convolution. Set convolution to null, or take "
            "another residual."
        )
    if residual.separate_reads and "input" in spec.of:
        raise InputError(
            f"convolution.of: expected no 'input' with residual {residual.kind!r}, which gives queries, keys and values inputs "
            f"of their own, got {list(spec.of)}. Name 'query', 'key' or 'value' instead."
        )
