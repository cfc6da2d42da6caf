r"""RMS norm: each position's entries are divided by their root mean square, then scaled.

    y = x / sqrt(mean(x^2) + eps) * gamma

Why: layer norm without centring and without a shift; cheaper, and as good in practice.

Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", arXiv:1910.07467.
Differs from the source: nothing. It has no shift, whatever the bias switches.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from addnorm.fields import require_positive
from addnorm.norm import NormSpec
from addnorm.reduction import Reduction


@dataclass(frozen=True, kw_only=True)
class RMS(NormSpec):
    """Divide by the root mean square over the last axis."""

    eps: float = 1e-5
    """Added to the mean square."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "eps")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        # An eps far above the stream's mean square leaves a constant factor, which the gain undoes.
        return (Reduction(settings={"eps": 2.0**80}, parameters={"weight": 2.0**40}, to={"norm": "none"}),)

    def build(self, dim: int, *, shift: bool) -> "RMSNorm":
        return RMSNorm(dim, eps=self.eps)


class RMSNorm(nn.RMSNorm):
    def forward(self, x: Float[Tensor, "batch seq dim"]) -> Float[Tensor, "batch seq dim"]:
        return super().forward(
            x.to(self.weight.dtype)
        )  # under autocast a branch's output has a narrower type than the gain
