r"""Replay: every earlier layer runs again on the present input, and their outputs join the stream.

    x_{m+1} = y_m + c_{m,m} u_m + sum_{i<m} c_{m,i} u_{i->m},        y_m = x_m + a_m(x_m)
    u_{i->m} = f_i(x_m + a_{i->m}(x_m))        if residual.scope is layer
    u_{i->m} = f_i(y_m)        if residual.scope is feedforward
    a_{i->m} = attention branch of layer i with its own attention P_i        if residual.scope is layer

P_i is the attention of layer i on its own input, so that a_{i->m}(x) is W_O^i (P_i W_V^i N_i(x)), plus biases if any.
Weights `sum`: c = 1; `mean`: c = 1/m; `softmax`: c_m = softmax of m learned numbers, zero at the start (so it starts as
`mean`), none at the first layer. With scope `feedforward` only the feed-forwards run again.

Why: `cumulative` adds the outputs of earlier layers on an old input; here they are applied to the present one. Layer m costs
as much as m layers.

Source: Kuang (2025), V3M1 (`sum`), V3M3.1 (`mean`), V3M3.2 (`softmax`).
Differs from the source: scope `feedforward` is ours, for comparison. The earlier layers run as one batched call. All sites of
a layer run again, whatever its block: of gated attention units, which the source does not have, both. Scope `feedforward` is
that of the last site.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from addnorm.errors import AddnormError
from addnorm.reduction import Reduction
from addnorm.residual import Coefficients, Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape, first_sites, last_sites

Weights = Literal["sum", "mean", "softmax"]
Scope = Literal["layer", "feedforward"]


@dataclass(frozen=True, kw_only=True)
class Replay(ResidualSpec):
    """Earlier layers on the present input."""

    replays = True

    weights: Weights = "sum"
    """Plain sum, equal weights, or one learned distribution per layer."""
    scope: Scope = "layer"
    """Run again the whole layer (with the attention of its own input), or its feed-forward branch alone."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        mean = {"residual": {"kind": "replay", "weights": "mean"}}
        one_layer = [
            Reduction(settings={"weights": weights}, given={"depth": 1}, to={"residual": "add"})
            for weights in ("sum", "mean", "softmax")
        ]
        return (*one_layer, Reduction(settings={"weights": "softmax"}, to=mean))

    def build(self, shape: Shape, parts: Parts) -> "ReplayResidual":
        return ReplayResidual(shape, parts, self.weights, self.scope)


class ReplayState(NamedTuple):
    stream: Tensor
    entry: Tensor
    """The stream that entered the present layer."""


class ReplayResidual(Residual):
    parameter_roles = {"mix": "scalar"}

    def __init__(self, shape: Shape, parts: Parts, weights: Weights, scope: Scope) -> None:
        super().__init__()
        self.first_sites, self.last_sites = first_sites(parts.sites), last_sites(parts.sites)
        self.weights, self.scope = weights, scope
        learned = range(1, shape.depth) if weights == "softmax" else ()
        self.mix = nn.ParameterList(torch.zeros(layer + 1) for layer in learned)

    def coefficients(self) -> Coefficients:
        return {
            name: ([int(name.rpartition(".")[2]) + 1] * weights.numel(), torch.softmax(weights.detach(), dim=0))
            for name, weights in self.named_parameters()
        }

    def open(self, x: Stream) -> ReplayState:
        return ReplayState(x, x)

    def write(self, state: ReplayState, y: Stream, site: Site) -> ReplayState:
        # Earlier layers run again on what entered this layer, not on what its first branches have made of it: a whole layer
        # begins with its own attention branch. Feed-forwards alone stand where this layer's own stands, on the present stream.
        # The first layer must not ask for a replay: there is no earlier attention to apply.
        if site.index in self.first_sites:
            state = state._replace(entry=state.stream)
        if site.layer == 0 or site.index not in self.last_sites:
            return ReplayState(state.stream + y, state.entry)
        earlier = self._replayed(state, site)
        if self.weights == "softmax":
            weights = torch.softmax(self.mix[site.layer - 1], dim=0).to(y.dtype)
            joined = torch.einsum("m,m...->...", weights[:-1], earlier) + weights[-1] * y
        else:
            joined = earlier.sum(dim=0) + y
            if self.weights == "mean":
                joined = joined / (site.layer + 1)
        return ReplayState(state.stream + joined, state.entry)

    def _replayed(self, state: ReplayState, site: Site) -> Tensor:
        if site.replay_layers is None or site.replay_feedforwards is None:
            raise AddnormError(
                "replay: expected a site that can run earlier layers again, got none. Build the residual inside a model."
            )
        if self.scope == "feedforward":
            return site.replay_feedforwards(state.stream)
        return site.replay_layers(state.entry)
