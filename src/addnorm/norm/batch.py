r"""Batch norm: each entry is standardised over the batch and all positions, then scaled and shifted.

    y_j = (x_j - mean_{batch,seq}(x_j)) / sqrt(var_{batch,seq}(x_j) + eps) * gamma_j + beta_j        if bias.norm
    y_j = (x_j - mean_{batch,seq}(x_j)) / sqrt(var_{batch,seq}(x_j) + eps) * gamma_j        if not bias.norm

Why: Anonymous (n.d.) compares the effect of a bias before it. In training a position sees statistics of later ones, so a causal
model leaks through them; in evaluation running statistics are used and nothing leaks.

Source: Ioffe and Szegedy 2015, arXiv:1502.03167; Anonymous (n.d.) eq. 3.
Differs from the source: statistics are taken over positions as well as over the batch. Padding takes part in them.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from addnorm.fields import require, require_positive
from addnorm.norm import NormSpec
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class Batch(NormSpec):
    """Standardise each entry over batch and positions."""

    eps: float = 1e-5
    """Added to the variance."""
    momentum: float = 0.1
    """Weight of a new batch in the running statistics."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "eps")
        require(self, "momentum", 0 < self.momentum <= 1, "a number in (0, 1]")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        still = {"running_mean": 0.0, "running_var": 1.0, "weight": 1.0, "bias": 0.0}  # as in evaluation
        return (Reduction(settings={"eps": 1e-30}, parameters=still, to={"norm": "none"}),)

    def build(self, dim: int, *, shift: bool) -> "BatchNorm":
        return BatchNorm(dim, self.eps, self.momentum, shift=shift)


class BatchNorm(nn.BatchNorm1d):
    def __init__(self, dim: int, eps: float, momentum: float, *, shift: bool) -> None:
        super().__init__(dim, eps=eps, momentum=momentum)
        if not shift:
            self.register_parameter("bias", None)

    def forward(self, x: Float[Tensor, "batch seq dim"]) -> Float[Tensor, "batch seq dim"]:
        return super().forward(x.flatten(0, 1)).view_as(x)
