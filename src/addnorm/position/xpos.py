r"""xPos: rotary positions whose scores also fade with the distance, slowly where the rotation is slow.

    q_m <- zeta^{m/s} R_m q_m,        k_n <- zeta^{-n/s} R_n k_n,        zeta_j = (2j/d_k + gamma) / (1 + gamma)
    q_m . k_n = sum_j zeta_j^{(m-n)/s} (R_{n-m} pair j of q and k),        j < d_k/2

R as in `rope`. Made for causal models: towards later keys the factor grows instead of fading.

Why: at long distances rotary scores oscillate; fading the fast pairs leaves the slow ones, which still distinguish distances.

Source: Sun et al. 2022, "A Length-Extrapolatable Transformer", arXiv:2212.10554, eq. 9, 10 and algorithm 1.
Differs from the source: its code counts positions from the middle of the sequence, which changes no score but would make
cached keys wrong as the sequence grows; here they are counted from its start. Keys grow as zeta^{-n/s}: positions beyond
what the number type holds are refused.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from addnorm.errors import InputError
from addnorm.fields import require_positive
from addnorm.kernels import precise
from addnorm.position import Angles, Position, PositionSpec, frequencies, turn
from addnorm.reduction import Reduction
from addnorm.shape import Shape

Turns = tuple[Angles, Angles]


@dataclass(frozen=True, kw_only=True)
class Xpos(PositionSpec):
    """Rotation with decay."""

    theta: float = 10_000.0
    """Base of the frequencies."""
    gamma: float = 0.4
    """The fastest pair fades by gamma / (1 + gamma) per `span`; the larger, the weaker the decay."""
    span: float = 512.0
    """s: the distance over which a pair fades by zeta, in positions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "theta", "gamma", "span")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return tuple(
            Reduction(settings=settings, to={"position": "rope"}) for settings in ({"gamma": 1e30}, {"span": 1e30})
        )

    def build(self, shape: Shape) -> "XposPosition":
        if shape.head_dim % 2:
            raise InputError(f"xpos rotates pairs: head width {shape.head_dim} must be even.")
        return XposPosition(shape.head_dim, self)


class XposPosition(Position):
    def __init__(self, head_dim: int, spec: Xpos) -> None:
        super().__init__()
        self.head_dim, self.spec = head_dim, spec

    def prepare(self, start: int, seq: int, like: Tensor) -> Turns:
        fading = math.log1p(1 / self.spec.gamma) / self.spec.span  # of the fastest pair, per position
        # A tenth of the type's exponents is left to the entries themselves and the sums of their products.
        known = int(0.9 * math.log(torch.finfo(like.dtype).max) / fading)
        if start + seq > known:
            raise InputError(
                f"xpos with gamma {self.spec.gamma:g} and span {self.spec.span:g} knows {known} positions in "
                f"{str(like.dtype).removeprefix('torch.')}, the sequence needs {start + seq}. Use a larger span or float64."
            )
        device = precise(like.device)
        position = torch.arange(start, start + seq, device=device, dtype=torch.float64)[:, None]
        angle = position * frequencies(self.head_dim, self.spec.theta, like.device)
        pair = torch.arange(0, self.head_dim, 2, device=device, dtype=torch.float64)
        zeta = (pair / self.head_dim + self.spec.gamma) / (1 + self.spec.gamma)
        cos, sin, grown = angle.cos(), angle.sin(), zeta ** (position / self.spec.span)
        query, key = ((cos * scale, sin * scale) for scale in (grown, 1 / grown))
        cos, sin, key_cos, key_sin = (wave.to(like.dtype).to(like.device) for wave in (*query, *key))
        return (cos, sin), (key_cos, key_sin)

    def rotate(
        self,
        query: Float[Tensor, "batch heads seq head_dim"],
        key: Float[Tensor, "batch kv_heads seq head_dim"],
        prepared: Turns,
    ) -> tuple[Float[Tensor, "batch heads seq head_dim"], Float[Tensor, "batch kv_heads seq head_dim"]]:
        return turn(query, *prepared[0]), turn(key, *prepared[1])
