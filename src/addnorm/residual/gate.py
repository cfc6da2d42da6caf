r"""Gated residual: a sigmoid of the stream decides how much of a branch joins.

    x_{l+1} = x_l + sigma(W_l x_l + b_l) * f_l(x_l),        W_l = 0, b_l = 0 at initialisation

W maps the width to 1 (`scalar`: one gate per position) or to the width (`vector`: one gate per entry).

Why: a layer may close itself for some positions; at the start every gate is one half.

Source: Zhang (2026) §13.6.2.
Differs from the source: its sketch leaves the width of the gate open; both readings are offered. x_l is the stream, not
the normed branch input.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Gate(ResidualSpec):
    """A learned, input-dependent branch weight."""

    width: Literal["scalar", "vector"] = "scalar"
    """One gate per position, or one per entry of the stream."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(parameters={"weight": 0.0, "bias": 1000.0}, to={"residual": "add"}),)

    def build(self, shape: Shape, parts: Parts) -> "GateResidual":
        return GateResidual(shape, len(parts.sites), 1 if self.width == "scalar" else shape.width)


class GateResidual(Residual):
    parameter_roles = {"weight": "hidden_matrix", "bias": "bias"}

    def __init__(self, shape: Shape, sites: int, gates: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(sites, gates, shape.width))
        self.bias = nn.Parameter(torch.zeros(sites, gates))

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        gate = F.linear(self.seen(state), self.weight[site.index], self.bias[site.index])
        return state + torch.sigmoid(gate) * y
