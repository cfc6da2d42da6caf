"""Products whose result has few columns, such as the attended values of a narrow head."""

import torch
from jaxtyping import Float
from torch import Tensor

NARROW = 16
"""Columns from which a product is as fast as its transpose. With 8, the transpose takes a quarter of the time: 0.18 against
0.68 ms for 32 products of 128 x 128 with 128 x 8 on one AVX2 core."""


def product(
    left: Float[Tensor, "slab line key"], right: Float[Tensor, "slab key entry"]
) -> Float[Tensor, "slab line entry"]:
    """Compute left · right; a result of few columns is a view of its transpose."""
    return torch.bmm(right.mT, left.mT).mT if right.shape[-1] < NARROW else torch.bmm(left, right)
