r"""Kronecker streams: hyper-connections whose mixing is a Kronecker product of exact 2 x 2 mixings.

    M = K_1 (x) ... (x) K_r,  K_k = [[a_k, 1 - a_k], [1 - a_k, a_k]]        n = 2^r streams
    a_k = sigma(d_k + s C_k rms(X)),  s = 0.01, d = residual.keep at initialisation
    pre = sigma(b + s A rms(X)),  post = 2 sigma(c + s B rms(X)),  h_l, X_i and the close as in `streams`

Why: rows and columns add up to one exactly, with log2(n) numbers per position and no rounds; `sinkhorn` comes near, with n^2
numbers and twenty rounds. Mixings of one site commute, and each is symmetric: fewer matrices than all balanced ones.

Source: 2026, "KromHC" (ICML), after Xie et al. 2025, "mHC", arXiv:2512.24880.
Differs from the source: we know it from a description alone, not from its text or code; starts are ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.fields import require
from addnorm.reduction import Reduction
from addnorm.residual import Parts, ResidualSpec
from addnorm.residual._streams import BalancedStreams
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class KroneckerStreams(ResidualSpec):
    """Several streams with exactly balanced mixing."""

    streams: int = 4
    """Number of streams, a power of two."""
    keep: float = 4.0
    """Logit of a stream's own weight in each factor at the start."""

    def __post_init__(self) -> None:
        super().__post_init__()
        power = self.streams >= 2 and self.streams & (self.streams - 1) == 0
        require(self, "streams", power, "a power of two, at least 2")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        shut = {"factor": 0.0, "offset": 0.0}
        plain = {"residual": "add"}
        return (
            Reduction(parameters=shut, to=plain, equal="after the next norm"),
            Reduction(settings={"streams": 2}, parameters=shut, to=plain, equal="after the next norm"),
        )

    def refused_sockets(self) -> Mapping[str, str]:
        return {"stream": "there is more than one stream"}

    def build(self, shape: Shape, parts: Parts) -> "KroneckerStreamsResidual":
        return KroneckerStreamsResidual(shape.width, parts, self)


class KroneckerStreamsResidual(BalancedStreams):
    def __init__(self, width: int, parts: Parts, spec: KroneckerStreams) -> None:
        sites, n = len(parts.sites), spec.streams
        super().__init__(width, sites, n, "identity", 1, dynamic=True, std=parts.std)
        self.mixing = "sinkhorn"  # any but "identity", for which the base makes no matrix
        factors = n.bit_length() - 1
        self.sizes = [n, n, factors]
        start = torch.cat((torch.zeros(2 * n), torch.full((factors,), spec.keep)))
        self.offset = nn.Parameter(start.repeat(sites, 1))
        self.weight = nn.Parameter(torch.empty(sites, sum(self.sizes), n * width))

    def _matrix(self, mixed: Tensor) -> Tensor:
        matrix = mixed.new_ones(*mixed.shape[:-1], 1, 1)
        for own in torch.sigmoid(mixed).unbind(-1):
            pair = torch.stack((own, 1 - own, 1 - own, own), dim=-1).unflatten(-1, (2, 2))
            size = 2 * matrix.shape[-1]
            # Entry ((i, k), (j, l)) of the product is matrix[i, j] * pair[k, l].
            product = matrix[..., :, None, :, None] * pair[..., None, :, None, :]
            matrix = product.reshape(*mixed.shape[:-1], size, size)
        return matrix
