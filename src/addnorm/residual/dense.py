r"""Depth-weighted average: after every layer the stream becomes a weighted sum of all layers' outputs so far.

    X_{l+1} = layer_l(x_l)        X_0: embeddings
    x_{l+1} = sum_{i<=l+1} alpha_{l,i} X_i        alpha_{l,i} = [i = l+1] at initialisation

With `dilation` k only every k-th i counts, from l+1 backwards; with `period` p only every p-th layer averages.

Why: a layer reads an earlier one directly, for a handful of numbers: it starts exactly as the plain residual.

Source: Pagliardini et al. 2024, "DenseFormer", arXiv:2402.02622.
Differs from the source: nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from addnorm.fields import require
from addnorm.kernels.depth_mixing import weighted_sum
from addnorm.reduction import Reduction
from addnorm.residual import Coefficients, Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape, last_sites


@dataclass(frozen=True, kw_only=True)
class Dense(ResidualSpec):
    """A learned average over the layers so far."""

    dilation: int = 1
    """Distance between the layers that count."""
    period: int = 1
    """Distance between the layers that average."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "dilation", self.dilation >= 1, "at least 1")
        require(self, "period", self.period >= 1, "at least 1")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(to={"residual": "add"}),
            Reduction(settings={"dilation": 2}, to={"residual": "add"}),
            Reduction(settings={"period": 1000}, parameters={}, to={"residual": "add"}),
        )

    def refused_sockets(self) -> Mapping[str, str]:
        return {"stream": "the average is taken over streams that no norm has changed"}

    def build(self, shape: Shape, parts: Parts) -> "DenseResidual":
        return DenseResidual(parts, self.dilation, self.period)


class Layers(NamedTuple):
    stream: Tensor
    outputs: tuple[Tensor, ...]
    """The embeddings, and the output of every layer so far."""


class DenseResidual(Residual):
    parameter_roles = {"weights": "vector"}

    def __init__(self, parts: Parts, dilation: int, period: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.last_sites = last_sites(parts.sites)
        self.averaging = [layer for layer in range(len(self.last_sites)) if (layer + 1) % period == 0]
        self.weights = nn.ParameterList()
        for layer in self.averaging:
            start = torch.zeros(len(self._counted(layer)))
            start[-1] = 1
            self.weights.append(nn.Parameter(start))

    def coefficients(self) -> Coefficients:
        return {
            f"weights.{number}": ([layer] * len(weights), weights.detach())
            for number, (layer, weights) in enumerate(zip(self.averaging, self.weights, strict=True))
        }

    def open(self, x: Stream) -> Layers:
        return Layers(x, (x,))

    def write(self, state: Layers, y: Stream, site: Site) -> Layers:
        stream = state.stream + y
        if site.index not in self.last_sites:
            return state._replace(stream=stream)
        outputs = (*state.outputs, stream)
        if site.layer not in self.averaging:
            return Layers(stream, outputs)
        weights = self.weights[self.averaging.index(site.layer)]
        counted = [outputs[index] for index in self._counted(site.layer)]
        return Layers(weighted_sum(weights, counted), outputs)

    def _counted(self, layer: int) -> list[int]:
        return list(range(layer + 1, -1, -self.dilation))[::-1]
