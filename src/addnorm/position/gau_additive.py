r"""GAU's additive position: the score of two learned vectors, rotated as queries and keys would be, is added to each score.

    score_{m,n} <- score_{m,n} + a^T R_m^T R_n b
    a^T R_{n-m} b = sum_j (a_{2j} b_{2j} + a_{2j+1} b_{2j+1}) cos((m-n) theta_j)
                        + (a_{2j} b_{2j+1} - a_{2j+1} b_{2j}) sin((m-n) theta_j)

theta_j = theta^{-2j/d_k}; a and b are learned, one pair of vectors per layer and head. With a = b = [√λ, 0, √λ, 0, …] it is
`sandwich` with scale λ.

Why: the fourth term of rotary attention with q and k biases, alone: according to Su (2023), the cause of its extrapolation.

Source: Hua et al. 2022, "Transformer Quality in Linear Time", arXiv:2202.10447, pseudocode of its
relative position bias, as Su (2023), eq. 1, quotes it.
Differs from the source: queries and keys are not rotated as well.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.fields import require_positive
from addnorm.position import DistancePosition, PositionSpec, frequencies
from addnorm.reduction import Reduction
from addnorm.shape import Shape

Waves = tuple[Float[Tensor, "pairs span"], Float[Tensor, "pairs span"]]


@dataclass(frozen=True, kw_only=True)
class GauAdditive(PositionSpec):
    """Two learned vectors per layer and head."""

    theta: float = 10_000.0
    """Base of the frequencies."""
    init_std: float = 0.02
    """Standard deviation of the entries of a and b at the start."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "theta", "init_std")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        wave = (1.0, 0.0) * 4  # of a head of eight entries
        return (
            Reduction(parameters={"a": wave, "b": wave}, to={"position": "sandwich"}),
            Reduction(parameters={"a": 0.0}, to={"position": "none"}),
            Reduction(parameters={"b": 0.0}, to={"position": "none"}),
        )

    def build(self, shape: Shape) -> "GauAdditivePosition":
        if shape.head_dim % 2:
            raise InputError(f"gau_additive rotates pairs: head width {shape.head_dim} must be even.")
        return GauAdditivePosition(shape, self.theta, self.init_std)


class GauAdditivePosition(DistancePosition):
    parameter_roles = {"a": "vector", "b": "vector"}

    def __init__(self, shape: Shape, theta: float, init_std: float) -> None:
        super().__init__()
        self.theta, self.init_std = theta, init_std
        self.a = nn.Parameter(torch.empty(shape.depth, shape.heads, shape.head_dim))
        self.b = nn.Parameter(torch.empty(shape.depth, shape.heads, shape.head_dim))

    def initialise(self, name: str, generator: torch.Generator) -> None:
        nn.init.normal_(self.get_parameter(name), std=self.init_std, generator=generator)

    def measure(self, distance: Int64[Tensor, " span"]) -> Waves:
        wave = frequencies(self.a.shape[-1], self.theta, distance.device)
        angle = torch.outer(wave, distance.to(wave.device))
        dtype = torch.promote_types(self.a.dtype, torch.float32)
        return angle.cos().to(dtype).to(distance.device), angle.sin().to(dtype).to(distance.device)

    def bias(self, layer: int, measured: Waves) -> Float[Tensor, "heads span"]:
        cos, sin = measured
        a, b = (vector[layer].to(cos.dtype).unflatten(-1, (-1, 2)) for vector in (self.a, self.b))
        along = (a * b).sum(-1)
        across = a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
        return along @ cos + across @ sin
