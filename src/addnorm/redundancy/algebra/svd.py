"""Singular value decomposition that does not give up."""

import torch
from scipy import linalg
from torch import Tensor


def svd(matrix: Tensor, *, full_matrices: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """`torch.linalg.svd` of a float64 matrix; the slower QR algorithm where the fast one does not converge, as it may with many
    equal singular values, which null spaces have."""
    try:
        left, values, right = torch.linalg.svd(matrix, full_matrices=full_matrices)
    except RuntimeError:  # LinAlgError, which torch does not export: it did not converge
        found = linalg.svd(matrix.numpy(), full_matrices=full_matrices, lapack_driver="gesvd")
        left, values, right = (torch.from_numpy(part) for part in found)
    return left, values, right
