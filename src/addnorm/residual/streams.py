r"""Hyper-connections: several streams, which every branch reads, mixes and writes with weights of its own.

    h_l = sum_j pre_j X_j
    X_i <- sum_j M_ij X_j + post_i f_l(h_l)        X_i = embeddings at the entry
    x = mean_i X_i        at the close
    pre = e_{l mod n}, M = I, post = 1, each plus s * tanh(W rms(X_j))        if residual.mixing is free
    pre = sigma(b + s A rms(X)), post = 2 sigma(c + s B rms(X))        if residual.mixing is not free
    M = S(D + s C rms(X)), S: 20 rounds that make rows and columns add up to one        if residual.mixing is sinkhorn
    M = sum_k softmax_k(d + s C rms(X)) P_k, P_k: all permutations        if residual.mixing is permutations
    M = I        if residual.mixing is identity

s starts at 0.01, W at zero, A, B, C at small random numbers, b, c, d, D at zero. Not `dynamic`: without the terms with s.

Why: a branch may read what one earlier branch wrote and leave what another did: depth becomes a learned wiring. Matrices whose
rows and columns add up to one keep the mean of the streams, so that deep products neither grow nor vanish.

Source: Zhu et al. 2024, "Hyper-Connections", arXiv:2409.19606 (free); Xie et al. 2025, "mHC", arXiv:2512.24880 (sinkhorn);
2026, "mHC-lite", arXiv:2601.05732 (permutations).
Differs from the source: the streams are joined by their mean (free: by their sum), which the final norm cannot tell apart;
norms inside are RMS without a gain; `identity` is ours, for comparison.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from addnorm.fields import require
from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec
from addnorm.residual._streams import BalancedStreams, FreeStreams, Mixing
from addnorm.shape import Shape

_MOST_PERMUTED = 5


@dataclass(frozen=True, kw_only=True)
class Streams(ResidualSpec):
    """Several streams with learned wiring."""

    streams: int = 4
    """Number of streams."""
    mixing: Mixing = "free"
    """Form of the matrices that mix the streams."""
    dynamic: bool = True
    """True if the weights also depend on the streams."""
    rounds: int = 20
    """Rounds of `sinkhorn`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "streams", self.streams >= 1, "at least 1")
        require(self, "rounds", self.rounds >= 1, "at least 1")
        if self.mixing == "permutations":
            require(self, "streams", self.streams <= _MOST_PERMUTED, f"at most {_MOST_PERMUTED} with permutations")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        plain = {"residual": "add"}
        balanced = [{"mixing": mixing} for mixing in ("sinkhorn", "permutations")]
        return (
            Reduction(settings={"mixing": "free"}, to=plain),
            Reduction(settings={"mixing": "free", "dynamic": False}, to=plain),
            Reduction(settings={"mixing": "free", "streams": 1}, to=plain),
            *(
                Reduction(settings=each | {"dynamic": False}, to=plain, equal="after the next norm")
                for each in balanced
            ),
            *(
                Reduction(
                    settings=each, parameters={"factor": 0.0, "offset": 0.0}, to=plain, equal="after the next norm"
                )
                for each in [*balanced, {"mixing": "identity"}]
            ),
        )

    def refused_sockets(self) -> Mapping[str, str]:
        return {"stream": "there is more than one stream"}

    def build(self, shape: Shape, parts: Parts) -> Residual:
        sites = len(parts.sites)
        if self.mixing == "free":
            return FreeStreams(shape.width, sites, self.streams, dynamic=self.dynamic)
        return BalancedStreams(
            shape.width, sites, self.streams, self.mixing, self.rounds, dynamic=self.dynamic, std=parts.std
        )
