"""Singular value decomposition that always converges."""

import torch
from scipy import linalg
from torch import Tensor


def svd(matrix: Tensor, *, full_matrices: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Decompose a float64 matrix as `torch.linalg.svd` does, with the slower QR algorithm if the fast one does not
    converge, which happens with many equal singular values, as null spaces have."""
    try:
        left, values, right = torch.linalg.svd(matrix, full_matrices=full_matrices)
    except RuntimeError:  # torch's LinAlgError, which it does not export: no convergence
        parts = linalg.svd(matrix.numpy(), full_matrices=full_matrices, lapack_driver="gesvd")
        left, values, right = (torch.from_numpy(part) for part in parts)
    return left, values, right
