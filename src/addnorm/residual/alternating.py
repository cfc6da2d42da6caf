r"""Alternating updates: several streams, of which each layer computes on one and corrects the others.

    Z_i = X_i + sum_j p_ij X_j        before layer l: predictions; p = 0 at initialisation
    D = layer_l(Z_a) - Z_a        a = l mod n: the active stream
    X_i <- Z_i + (1 + c_i) D        corrections; c = 0 at initialisation
    x = mean_i X_i        at the close; X_i = embeddings at the entry

Why: n times the width to remember in, at the cost of one width to compute in.

Source: Baykal et al. 2023, "Alternating Updates", arXiv:2301.13310; Gemma 3n uses it.
Differs from the source: all streams start as the embeddings, instead of parts of a wider table, and their mean is read at the
end; the weights are learned numbers per layer, not functions of the active stream as in Gemma 3n, and are nowhere clamped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from addnorm.fields import require
from addnorm.kernels import without_autocast
from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape, first_sites, last_sites


@dataclass(frozen=True, kw_only=True)
class Alternating(ResidualSpec):
    """Several streams, one of them computed on per layer."""

    streams: int = 4
    """Number of streams."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "streams", self.streams >= 1, "at least 1")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(to={"residual": "add"}), Reduction(settings={"streams": 1}, to={"residual": "add"}))

    def refused_sockets(self) -> Mapping[str, str]:
        return {"stream": "there is more than one stream"}

    def build(self, shape: Shape, parts: Parts) -> "AlternatingResidual":
        return AlternatingResidual(parts, self.streams)


class Predicted(NamedTuple):
    streams: Tensor
    """[streams, batch, seq, width]; inside a layer, the predictions."""
    active: Tensor | None
    """The active stream inside a layer."""
    entry: Tensor | None
    """The active stream's prediction, inside a layer."""


class AlternatingResidual(Residual):
    parameter_roles = {"prediction": "table", "correction": "vector"}

    def __init__(self, parts: Parts, streams: int) -> None:
        super().__init__()
        self.streams = streams
        self.first_sites, self.last_sites = first_sites(parts.sites), last_sites(parts.sites)
        depth = len(self.first_sites)
        self.prediction = nn.Parameter(torch.zeros(depth, streams, streams))
        self.correction = nn.Parameter(torch.zeros(depth, streams))

    def open(self, x: Stream) -> Predicted:
        return Predicted(x.expand(self.streams, *x.shape), None, None)

    def read(self, state: Predicted, site: Site) -> tuple[Stream, Predicted]:
        if site.index in self.first_sites:
            with without_autocast(state.streams):
                weights = self.prediction[site.layer].to(state.streams.dtype)
                predicted = state.streams + torch.einsum("ij,j...d->i...d", weights, state.streams)
            active = predicted[site.layer % self.streams]
            state = Predicted(predicted, active, active)
        assert state.active is not None  # set at the layer's first site
        return state.active, state

    def write(self, state: Predicted, y: Stream, site: Site) -> Predicted:
        assert state.active is not None
        assert state.entry is not None
        active = state.active + y
        if site.index not in self.last_sites:
            return state._replace(active=active)
        difference = active - state.entry
        factors = (1 + self.correction[site.layer]).to(difference.dtype)
        return Predicted(state.streams + torch.einsum("n,...->n...", factors, difference), None, None)

    def view(self, state: Predicted) -> Stream:
        mean = state.streams.mean(dim=0)
        if state.active is None or state.entry is None:
            return mean
        return mean + (state.active - state.entry)  # as if the layer ended here, with corrections of one
