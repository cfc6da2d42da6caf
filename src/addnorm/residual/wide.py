r"""Wide residual: several streams, which are read as their mean and written with weights that differ.

    h_l = mean_j X_j        X_j = embeddings at the entry; the same at the close
    X_j <- rho X_j + 2 sigma(beta_{l,j}) f_l(h_l)        rho = residual.retention
    beta_{l,j} = equal steps from -residual.spread to residual.spread, over j, at initialisation

Why: memory for several histories at the cost of one read: weights of a site add up to the number of streams at the start, so
that the mean of the streams is the plain residual's stream, exactly, and a trained model can be widened.

Source: NVIDIA Megatron-LM, wide residual streams, https://github.com/NVIDIA/Megatron-LM/pull/6716.
Differs from the source: read from its discussion, not from its code. Under one mean read alone, streams whose retention is
equal are a gauge: their mean decides everything.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.fields import require, require_at_least
from addnorm.kernels.depth_mixing import write_streams
from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream, equal_steps
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Wide(ResidualSpec):
    """Several streams that are read as one."""

    streams: int = 4
    """Number of streams."""
    spread: float = 1.0
    """Largest beta at the start."""
    retention: float = 1.0
    """Weight of a stream when an output joins; below 1, the model does not start as the plain one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "streams")
        require(self, "retention", 0 < self.retention <= 1, "a number in (0, 1]")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(to={"residual": "add"}),
            Reduction(settings={"streams": 1, "spread": 0.0}, to={"residual": "add"}),
            Reduction(parameters={"beta": (-2.0, -0.5, 0.5, 2.0)}, to={"residual": "add"}),
        )

    def refused_sockets(self) -> Mapping[str, str]:
        return {"stream": "there is more than one stream"}

    def build(self, shape: Shape, parts: Parts) -> "WideResidual":
        return WideResidual(len(parts.sites), self)


class WideResidual(Residual):
    parameter_roles = {"beta": "vector"}

    def __init__(self, sites: int, spec: Wide) -> None:
        super().__init__()
        self.streams, self.retention = spec.streams, spec.retention
        # Mirrored logits: sigma(-b) + sigma(b) = 1, so that each pair of streams has the mean weight 1.
        start = equal_steps(-spec.spread, spec.spread, spec.streams)
        self.beta = nn.Parameter(start.repeat(sites, 1))

    def open(self, x: Stream) -> Tensor:
        return x.unsqueeze(-2).expand(*x.shape[:-1], self.streams, x.shape[-1])

    def read(self, state: Tensor, site: Site) -> tuple[Stream, Tensor]:
        return state.mean(dim=-2), state

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        weights = (2 * torch.sigmoid(self.beta[site.index])).to(state.dtype)
        kept = state if self.retention == 1 else self.retention * state
        return write_streams(kept, None, weights, y)

    def view(self, state: Tensor) -> Stream:
        return state.mean(dim=-2)
