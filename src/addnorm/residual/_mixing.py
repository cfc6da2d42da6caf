"""Permutation matrices, whose weighted means mix several streams."""

from itertools import permutations

import torch
from jaxtyping import Float
from torch import Tensor


def permutation_matrices(streams: int) -> Float[Tensor, "permutations streams streams"]:
    """Make every permutation matrix; the first is the identity."""
    return torch.stack([torch.eye(streams)[list(order)] for order in permutations(range(streams))])
