r"""Gated streams: several streams, of which each branch reads a gated mean of norms and to which it writes with gates.

    n_j = X_j / rms(X_j) * gamma_j;  N = (n_1 … n_n)        X_j = embeddings at the entry
    h = mean_j sigma(U silu(D N / n))_j * n_j        U: width * n x residual.rank
    X_j <- X_j + 2 sigma(B_j N / n) f(h)        B = 0, U = 0 at initialisation
    x = one more read, with matrices and gains of its own        at the close

Why: the gates of a read are of low rank and of every entry, so that a branch may take some entries from one stream and others
from another; no stream is mixed into another, so that each keeps what was written to it.

Source: Qwen 4 (experimental), `Qwen4ExpTextGatedResidual` in Transformers,
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/qwen4_exp/modeling_qwen4_exp.py.
Differs from the source: U and B start at zero, where all streams are equal, and D as the model's matrices do. The norm is part
of the read: placement `none` is the source's; others put a further norm on what is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.fields import require_at_least, require_positive
from addnorm.kernels import reciprocal_rms, without_autocast
from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class GatedStreams(ResidualSpec):
    """Several streams behind gates of low rank."""

    streams: int = 4
    """Number of streams."""
    rank: int = 16
    """Rank of the gates of a read."""
    eps: float = 1e-6
    """Added to the mean square of a stream."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "streams", "rank")
        require_positive(self, "eps")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        shut = {"up": 0.0, "inject": 0.0, "gain": 2.0}  # gates of 1/2
        return (
            Reduction(
                settings={"eps": 1e-5},
                parameters=shut,
                given={"placement": "none"},
                to={"residual": "add", "placement": "pre"},
            ),
        )

    def refused_sockets(self) -> Mapping[str, str]:
        return {"stream": "there is more than one stream"}

    def build(self, shape: Shape, parts: Parts) -> "GatedStreamsResidual":
        return GatedStreamsResidual(shape.width, len(parts.sites), self, parts.std)


class GatedState(NamedTuple):
    streams: Tensor
    """[batch, seq, streams, width]"""
    inject: Tensor | None = None
    """Weight of the branch's output in each stream, between read and write."""


class GatedStreamsResidual(Residual):
    parameter_roles = {"gain": "vector", "down": "hidden_matrix", "up": "hidden_matrix", "inject": "hidden_matrix"}

    def __init__(self, width: int, sites: int, spec: GatedStreams, std: float) -> None:
        super().__init__()
        self.streams, self.eps, self.std = spec.streams, spec.eps, std
        # The close reads as a branch does, and writes nothing.
        self.gain = nn.Parameter(torch.ones(sites + 1, spec.streams, width))
        self.down = nn.Parameter(torch.empty(sites + 1, spec.rank, spec.streams * width))
        self.up = nn.Parameter(torch.zeros(sites + 1, spec.streams * width, spec.rank))
        self.inject = nn.Parameter(torch.zeros(sites, spec.streams, spec.streams * width))

    def initialise(self, name: str, generator: torch.Generator) -> None:
        if name == "down":
            nn.init.normal_(self.down, std=self.std, generator=generator)

    def open(self, x: Stream) -> GatedState:
        return GatedState(x.unsqueeze(-2).expand(*x.shape[:-1], self.streams, x.shape[-1]))

    def read(self, state: GatedState, site: Site) -> tuple[Stream, GatedState]:
        read, seen = self._mixed(state, site.index)
        with without_autocast(seen):
            logits = F.linear(seen, self.inject[site.index].to(seen.dtype)) / self.streams
        return read, state._replace(inject=2 * torch.sigmoid(logits))

    def write(self, state: GatedState, y: Stream, site: Site) -> GatedState:
        assert state.inject is not None  # set by the read at the same site
        return GatedState(state.streams + state.inject[..., None] * y.to(state.streams.dtype)[..., None, :])

    def view(self, state: GatedState) -> Stream:
        return self._mixed(state, -1)[0]

    def _mixed(self, state: GatedState, index: int) -> tuple[Stream, Tensor]:
        """The mean of normed streams behind their gates; and the norms side by side, as what gates are computed from."""
        streams, gain = state.streams, self.gain[index].to(state.streams.dtype)
        # Gates and sizes depend on the state and are constants of a frozen residual; the streams themselves are what is read.
        seen = self.seen(streams)
        size = reciprocal_rms(seen, self.eps).to(streams.dtype)[..., None]
        normed = streams * size * gain
        flat = (seen * size * gain).flatten(-2)
        with without_autocast(flat):
            hidden = F.silu(F.linear(flat, self.down[index].to(flat.dtype)) / self.streams)
            gates = torch.sigmoid(F.linear(hidden, self.up[index].to(flat.dtype)))
        return (gates.unflatten(-1, (self.streams, -1)) * normed).mean(dim=-2), flat
