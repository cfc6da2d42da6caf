r"""Hyper-connections as they are shipped: streams with balanced or no mixing, floors under the weights, and a learned close.

    pre = sigma(b + s A rms(X)) + eps,  post = m sigma(c + s B rms(X)) + residual.write_eps
    M = S(D + s C rms(X)), S: softmax and divisions, each plus eps        if residual.mixing is sinkhorn
    M = I        if residual.mixing is identity
    h_l = sum_j pre_j X_j,  X_i <- sum_j M_ij X_j + post_i f_l(h_l)
    x = mean_i X_i        if residual.close is mean
    x = sum_i (sigma(b' + s' A' rms(X)) + eps)_i X_i        if residual.close is learned

eps is residual.eps and m residual.magnitude. s starts at 0.01, the matrices at small random numbers, b, c, D, b' at zero.

Why: what implementations added to `streams`: floors that keep every stream read and written, a size of writes, a learned close.

Source: DeepSeek-V4 (sinkhorn, learned), GLM-5 Next (sinkhorn, mean), Hunyuan V4 (identity, learned, magnitude) in Transformers,
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/deepseek_v4/modeling_deepseek_v4.py.
Differs from the source: the matrix of DeepSeek-V4 has sources first and is applied transposed; here M has targets first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from addnorm.fields import require, require_at_least, require_positive
from addnorm.kernels import wide
from addnorm.kernels.depth_mixing import normed_product, read_streams
from addnorm.reduction import Reduction
from addnorm.residual import Parts, ResidualSpec, Stream
from addnorm.residual._streams import BalancedStreams, Wired
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class HyperConnections(ResidualSpec):
    """Several streams with floors under their weights."""

    streams: int = 4
    """Number of streams."""
    mixing: Literal["sinkhorn", "identity"] = "sinkhorn"
    """Matrices that mix the streams."""
    rounds: int = 20
    """Rounds of `sinkhorn`."""
    eps: float = 1e-6
    """Floor of the weights of a read, and of every divisor of `sinkhorn`."""
    write_eps: float = 0.0
    """Floor of the weights of a write."""
    magnitude: float = 2.0
    """Upper bound of the weights of a write, above their floor."""
    norm_eps: float = 1e-6
    """Added to the mean square of the streams, from which weights are computed."""
    close: Literal["mean", "learned"] = "learned"
    """The stream after the last branch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "streams", "rounds")
        require_positive(self, "magnitude", "norm_eps")
        for name in ("eps", "write_eps"):
            require(self, name, getattr(self, name) >= 0, "at least 0")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        shut = {"factor": 0.0, "offset": 0.0, "close_factor": 0.0, "close_offset": 0.0}
        plain = {"residual": "add"}
        return tuple(
            reduction
            for mixing in ("sinkhorn", "identity")
            for reduction in (
                Reduction(
                    settings={"mixing": mixing, "eps": 0.0, "norm_eps": 1e-8, "close": "mean"},
                    parameters={},
                    to={"residual": {"kind": "streams", "mixing": mixing}},
                ),
                Reduction(
                    settings={"mixing": mixing, "eps": 0.0}, parameters=shut, to=plain, equal="after the next norm"
                ),
            )
        )

    def refused_sockets(self) -> Mapping[str, str]:
        return {"stream": "there is more than one stream"}

    def build(self, shape: Shape, parts: Parts) -> "HyperConnectionsResidual":
        return HyperConnectionsResidual(shape.width, parts, self)


class HyperConnectionsResidual(BalancedStreams):
    parameter_roles = {
        **BalancedStreams.parameter_roles,
        "close_offset": "vector",
        "close_weight": "hidden_matrix",
        "close_factor": "scalar",
    }

    def __init__(self, width: int, parts: Parts, spec: HyperConnections) -> None:
        super().__init__(width, len(parts.sites), spec.streams, spec.mixing, spec.rounds, dynamic=True, std=parts.std)
        self.norm_eps, self.magnitude = spec.norm_eps, spec.magnitude
        self.read_eps, self.write_eps = spec.eps, spec.write_eps
        self.learned, n = spec.close == "learned", spec.streams
        self.close_offset = nn.Parameter(torch.zeros(n)) if self.learned else None
        self.close_weight = nn.Parameter(torch.empty(n, n * width)) if self.learned else None
        self.close_factor = nn.Parameter(torch.full((1,), 0.01)) if self.learned else None

    def initialise(self, name: str, generator: torch.Generator) -> None:
        super().initialise(name, generator)
        if name == "close_weight" and self.close_weight is not None:
            nn.init.normal_(self.close_weight, std=self.std, generator=generator)

    def view(self, state: Wired) -> Stream:
        if self.close_weight is None or self.close_offset is None or self.close_factor is None:
            return super().view(state)
        seen = self.seen(state.streams)
        moved = normed_product(seen.flatten(-2), self.close_weight, self.norm_eps)
        weights = torch.sigmoid(wide(self.close_offset) + wide(self.close_factor) * moved) + self.read_eps
        read, _ = read_streams(state.streams, weights.to(state.streams.dtype))
        result: Tensor = read
        return result
