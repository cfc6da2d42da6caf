r"""KERPLE: the score falls with the distance as a learned kernel, in every head its own, the same in all layers.

    score_{m,n} <- score_{m,n} - r_1 log(1 + r_2 |m - n|),        r_1, r_2 > 0        if position.kernel is log
    score_{m,n} <- score_{m,n} - r_1 |m - n|^{r_2},        r_1 > 0,  0 < r_2 < 2        if position.kernel is power

Why: the forms of shift-invariant, conditionally positive definite kernels; ALiBi is `power` with r_2 = 1.

Source: Chi et al. 2022, "KERPLE", arXiv:2205.09921, section 4, eq. 4; start, bounds and place (after the score's scale) from
its code, https://github.com/chijames/KERPLE.
Differs from the source: it clamps r_1, r_2 (at 0.01, and r_2 of `power` at 2) after each step; here they are exp of a learned
number, and 2 sigmoid of one, which keeps them in range. The starts are drawn alike: uniform on (0, 2) for the
first of `log` and the second of `power`, on (0, 1) for the others, at least 0.01.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from addnorm.position import DistancePosition, PositionSpec
from addnorm.reduction import Reduction
from addnorm.shape import Shape

Kernel = Literal["log", "power"]
LEAST = 0.01


@dataclass(frozen=True, kw_only=True)
class Kerple(PositionSpec):
    """Two learned numbers per head."""

    kernel: Kernel = "log"
    """Logarithm of the distance, or a power of it."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        slopes = tuple(-2 * head * math.log(2) for head in range(1, 5))  # of four heads
        return (
            Reduction(
                settings={"kernel": "power"}, parameters={"log_r1": slopes, "logit_r2": 0.0}, to={"position": "alibi"}
            ),
            *(
                Reduction(settings={"kernel": kernel}, parameters={"log_r1": -800.0}, to={"position": "none"})
                for kernel in ("log", "power")
            ),
        )

    def build(self, shape: Shape) -> "KerpleLog | KerplePower":
        return KerpleLog(shape) if self.kernel == "log" else KerplePower(shape)


class KerpleLog(DistancePosition):
    parameter_roles = {"log_r1": "scalar", "log_r2": "scalar"}

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.log_r1 = nn.Parameter(torch.empty(shape.heads))
        self.log_r2 = nn.Parameter(torch.empty(shape.heads))

    def initialise(self, name: str, generator: torch.Generator) -> None:
        parameter = self.get_parameter(name)
        parameter.copy_(parameter.uniform_(LEAST, 2 if name == "log_r1" else 1, generator=generator).log())

    def measure(self, distance: Int64[Tensor, " span"]) -> Float[Tensor, " span"]:
        return distance.abs().to(torch.promote_types(self.log_r1.dtype, torch.float32))

    def bias(self, layer: int, measured: Float[Tensor, " span"]) -> Float[Tensor, "heads span"]:
        r1, r2 = (r.to(measured.dtype).exp()[:, None] for r in (self.log_r1, self.log_r2))
        return -r1 * torch.log1p(r2 * measured)


class KerplePower(DistancePosition):
    parameter_roles = {"log_r1": "scalar", "logit_r2": "scalar"}

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.log_r1 = nn.Parameter(torch.empty(shape.heads))
        self.logit_r2 = nn.Parameter(torch.empty(shape.heads))

    def initialise(self, name: str, generator: torch.Generator) -> None:
        parameter = self.get_parameter(name)
        if name == "log_r1":
            parameter.copy_(parameter.uniform_(LEAST, 1, generator=generator).log())
        else:
            parameter.copy_(torch.logit(parameter.uniform_(LEAST / 2, 1 - LEAST / 2, generator=generator)))

    def measure(self, distance: Int64[Tensor, " span"]) -> Float[Tensor, " span"]:
        return distance.abs().to(torch.promote_types(self.log_r1.dtype, torch.float32))

    def bias(self, layer: int, measured: Float[Tensor, " span"]) -> Float[Tensor, "heads span"]:
        r1, r2 = (r.to(measured.dtype)[:, None] for r in (self.log_r1, self.logit_r2))
        return -r1.exp() * measured ** (2 * r2.sigmoid())
