"""Matrices that mix several streams, from unrestricted numbers: the first two axes are target and source stream.

The positions are the last axes, so that sums over the few streams run over long rows.
"""

from itertools import permutations

import torch
from jaxtyping import Float
from torch import Tensor

Logits = Float[Tensor, "streams streams *positions"]


def sinkhorn(logits: Logits, rounds: int) -> Logits:
    """Make a matrix whose rows and columns add up to one, by turns: `rounds` times columns, then rows.

    Rows add up to one exactly up to rounding, columns nearly: streams that are equal stay equal.
    """
    matrix = torch.exp(logits - logits.amax(dim=(0, 1), keepdim=True))
    for _ in range(rounds):
        matrix = matrix / matrix.sum(dim=0, keepdim=True)
        matrix = matrix / matrix.sum(dim=1, keepdim=True)
    return matrix


def permutation_matrices(streams: int) -> Float[Tensor, "permutations streams streams"]:
    """Make every permutation matrix; the first is the identity."""
    return torch.stack([torch.eye(streams)[list(order)] for order in permutations(range(streams))])
