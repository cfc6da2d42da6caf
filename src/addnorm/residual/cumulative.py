r"""Cumulative residual: a layer's stream takes a weighted mean of all feed-forward outputs so far.

    x_{m+1} = y_m + sum_{i<=m} w_{m,i} u_i,        y_m = x_m + a_m(x_m)

u_i is the output of layer i's feed-forward branch, of other blocks that of its last site. Weights `mean`: w_{m,i} = 1/m.
Weights `softmax`: w_m = softmax of m learned numbers, zero at the start (so it starts as `mean`), none at the first layer.
The other sites add plainly.

Why: every layer sees what the earlier feed-forwards wrote, undiluted by the layers between.

Source: Kuang (2025), V2M1 ("CLT", `mean`) and V2M3 (tuned CLT, `softmax`).
Differs from the source: nothing, for layers of attention and feed-forward.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from addnorm.reduction import Reduction
from addnorm.residual import Coefficients, Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape, last_sites


@dataclass(frozen=True, kw_only=True)
class Cumulative(ResidualSpec):
    """A weighted mean over the history of feed-forward outputs."""

    weights: Literal["mean", "softmax"] = "mean"
    """Equal weights, or one learned distribution per layer."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        mean = {"residual": {"kind": "cumulative", "weights": "mean"}}
        one_layer = [
            Reduction(settings={"weights": weights}, given={"depth": 1}, to={"residual": "add"})
            for weights in ("mean", "softmax")
        ]
        return (*one_layer, Reduction(settings={"weights": "softmax"}, to=mean))

    def build(self, shape: Shape, parts: Parts) -> Residual:
        return MeanCumulative(parts) if self.weights == "mean" else SoftmaxCumulative(shape, parts)


class MeanState(NamedTuple):
    stream: Tensor
    total: Tensor | None
    """Sum of the feed-forward outputs so far."""


class MeanCumulative(Residual):
    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.last_sites = last_sites(parts.sites)

    def open(self, x: Stream) -> MeanState:
        return MeanState(x, None)

    def write(self, state: MeanState, y: Stream, site: Site) -> MeanState:
        if site.index not in self.last_sites:
            return state._replace(stream=state.stream + y)
        total = y if state.total is None else state.total + y
        return MeanState(state.stream + total / (site.layer + 1), total)


class HistoryState(NamedTuple):
    stream: Tensor
    outputs: tuple[Tensor, ...]
    """Every feed-forward output so far."""


class SoftmaxCumulative(Residual):
    parameter_roles = {"mix": "scalar"}

    def __init__(self, shape: Shape, parts: Parts) -> None:
        super().__init__()
        self.last_sites = last_sites(parts.sites)
        self.mix = nn.ParameterList(torch.zeros(layer + 1) for layer in range(1, shape.depth))

    def coefficients(self) -> Coefficients:
        return {
            name: ([int(name.rpartition(".")[2]) + 1] * weights.numel(), torch.softmax(weights.detach(), dim=0))
            for name, weights in self.named_parameters()
        }

    def open(self, x: Stream) -> HistoryState:
        return HistoryState(x, ())

    def write(self, state: HistoryState, y: Stream, site: Site) -> HistoryState:
        if site.index not in self.last_sites:
            return state._replace(stream=state.stream + y)
        outputs = (*state.outputs, y)
        if site.layer == 0:
            return HistoryState(state.stream + y, outputs)
        weights = torch.softmax(self.mix[site.layer - 1], dim=0).to(y.dtype)
        joined = torch.einsum("m,m...->...", weights, torch.stack(outputs))
        return HistoryState(state.stream + joined, outputs)
