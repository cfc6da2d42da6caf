r"""AltUp as it is shipped: alternating updates with weights by the active stream, and LAuReL beside a layer's first branch.

    X_0 = x;  X_i = E_i x * rms(x) / rms(E_i x)        x: embeddings; E = 1 at initialisation
    g(v) = tanh(R_l N(v) / d)
    Z_i = X_i + sum_j (P_l g(X_a))_ij X_j        before layer l; P = 0 at initialisation
    A = (Z_a + f(Z_a) + n + N(B_l D_l n)) / sqrt(2);  n = N(Z_a)        if residual.rank
    A <- A + f(A)        its other branches
    X_i <- Z_i + (1 + (C_l g(A))_i) (A - Z_a)        C = 0 at initialisation
    X_i <- X_i + f(s * X_a), i > 0;  s = 1 at initialisation        if residual.late
    x = mean_i Y_i;  Y_0 = X_0;  Y_i = U_i X_i * rms(X_0) / rms(U_i X_i)        at the close; U = 1 at initialisation

a is residual.active, d the width.

Why: streams that no layer computes on are predicted and corrected by what the computed one says of the token; late branches
write what no layer is to compute on.

Source: Gemma 3n, `Gemma3nTextAltUp` and `Gemma3nTextLaurelBlock` in Transformers,
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/gemma3n/modeling_gemma3n.py; Baykal et al.
2023, arXiv:2301.13310; Menghani et al. 2024, arXiv:2411.07501.
Differs from the source: E, U, P, C, B and s start as above, in the source as matrices do and s at zero; n is a norm of its own,
where the source takes that of the first branch; coefficients are nowhere clipped in training.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from addnorm.fields import require, require_at_least
from addnorm.reduction import Reduction
from addnorm.residual import Parts, ResidualSpec
from addnorm.residual._updates import AltUpResidual
from addnorm.shape import Shape, first_sites, last_sites


@dataclass(frozen=True, kw_only=True)
class AltUp(ResidualSpec):
    """Several streams, one of them computed on, with weights that depend on it."""

    streams: int = 4
    """Number of streams."""
    active: int = 0
    """Stream that layers compute on."""
    rank: int = 16
    """Rank of the path beside the first branch; 0 for none."""
    late: int = 0
    """Number of a layer's last branches that come after its correction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 2, "streams")
        require_at_least(self, 0, "active", "rank", "late")
        require(self, "active", self.active < self.streams, f"less than streams, which is {self.streams}")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(
                settings={"rank": 0},
                parameters={"prediction": 0.0, "correction": 0.0, "entry": "start", "exit": "start"},
                to={"residual": "add"},
            ),
        )

    def refused_sockets(self) -> Mapping[str, str]:
        return {"stream": "there is more than one stream"}

    def build(self, shape: Shape, parts: Parts) -> "AltUpResidual":
        starts, ends = first_sites(parts.sites), last_sites(parts.sites)
        branches = min(end + 1 - start for start, end in zip(starts, ends, strict=True))
        require(self, "late", self.late < branches, f"less than the branches of a layer, which are {branches}")
        return AltUpResidual(
            shape.width, parts, self.streams, self.active, rank=self.rank, corrected=[end - self.late for end in ends]
        )
