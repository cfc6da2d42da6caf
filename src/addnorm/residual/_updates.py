"""Alternating updates whose weights depend on the active stream; see `altup`."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.kernels import wide, without_autocast
from addnorm.residual import Parts, Residual, Site, Stream
from addnorm.shape import Place, first_sites, last_sites

_SMALLEST = 1e-5
"""Least mean square by which a stream is divided; the source's."""


class Updated(NamedTuple):
    streams: Tensor
    """[streams, batch, seq, width]; inside a layer, the predictions."""
    active: Tensor | None = None
    """The active stream as the layer has changed it so far; None outside of a layer and at its late branches."""


class AltUpResidual(Residual):
    parameter_roles = {
        **dict.fromkeys(("entry", "exit", "router", "down", "up"), "hidden_matrix"),
        "prediction": "table",
        "correction": "table",
        "late_scale": "vector",
    }

    def __init__(
        self, width: int, parts: Parts, streams: int, active: int, *, rank: int, corrected: Sequence[int]
    ) -> None:
        super().__init__()
        self.active, self.std, n = active, parts.std, streams
        self.first_sites, self.corrected = first_sites(parts.sites), tuple(corrected)
        depth, late = len(self.corrected), last_sites(parts.sites)[-1] - self.corrected[-1]
        self.entry, self.exit = (nn.Parameter(torch.eye(width).repeat(n - 1, 1, 1)) for _ in range(2))
        self.router = nn.Parameter(torch.empty(depth, n, width))
        self.prediction = nn.Parameter(torch.zeros(depth, n * n, n))
        self.correction = nn.Parameter(torch.zeros(depth, n, n))
        self.router_norms = nn.ModuleList(parts.norm(width) for _ in range(depth))
        self.late_scale = nn.Parameter(torch.ones(depth, late, width)) if late else None
        paths = depth if rank else 0
        self.down = nn.Parameter(torch.empty(paths, rank, width)) if paths else None
        self.up = nn.Parameter(torch.zeros(paths, width, rank)) if paths else None
        self.input_norms, self.path_norms = (nn.ModuleList(parts.norm(width) for _ in range(paths)) for _ in range(2))

    def initialise(self, name: str, generator: torch.Generator) -> None:
        if name in ("router", "down"):
            nn.init.normal_(getattr(self, name), std=self.std, generator=generator)

    def open(self, x: Stream) -> Updated:
        return Updated(torch.stack([x, *(self._sized(self.entry[i], x, x) for i in range(len(self.entry)))]))

    def read(self, state: Updated, site: Site) -> tuple[Stream, Updated]:
        if site.index in self.first_sites:
            n = len(state.streams)
            weights = self._routed(self.prediction, state.streams[self.active], site).unflatten(-1, (n, n))
            with without_autocast(state.streams):
                predicted = state.streams + torch.einsum("...ij,j...d->i...d", weights, state.streams)
            state = Updated(predicted, predicted[self.active])
        if state.active is not None:
            return state.active, state
        assert self.late_scale is not None  # or every site would lie before its layer's correction
        number = site.index - self.corrected[site.layer] - 1
        return self.late_scale[site.layer, number].to(state.streams.dtype) * state.streams[self.active], state

    def write(self, state: Updated, y: Stream, site: Site) -> Updated:
        if state.active is None:
            return Updated(torch.cat([state.streams[:1], state.streams[1:] + y.to(state.streams.dtype)]))
        active = state.active + y
        if site.index in self.first_sites and self.down is not None and self.up is not None:
            given = self.input_norms[site.layer](state.active).to(state.streams.dtype)
            path = _times(self.up[site.layer], _times(self.down[site.layer], given))
            active = (active + given + self.path_norms[site.layer](path)) / 2**0.5
        if site.index != self.corrected[site.layer]:
            return state._replace(active=active)
        return self._corrected(state._replace(active=active), site)

    def view(self, state: Updated) -> Stream:
        # As if the layer ended here, with corrections of one: the state does not say of which layer it is.
        streams = state.streams
        if state.active is not None:
            streams = streams + (state.active - streams[self.active])
        closed = [self._sized(matrix, one, streams[0]) for matrix, one in zip(self.exit, streams[1:], strict=True)]
        return torch.stack([streams[0], *closed]).mean(dim=0)

    def _corrected(self, state: Updated, site: Place) -> Updated:
        assert state.active is not None
        factors = 1 + self._routed(self.correction, state.active, site)
        change = state.active - state.streams[self.active]
        return Updated(state.streams + factors.movedim(-1, 0)[..., None] * change)

    def _routed(self, weights: Tensor, x: Stream, site: Place) -> Float[Tensor, "batch seq entries"]:
        """Weights of a layer that depend on a stream."""
        normed = self.router_norms[site.layer](self.seen(x)) / x.shape[-1]
        routed = torch.tanh(wide(_times(self.router[site.layer], normed.to(x.dtype)))).to(x.dtype)
        return _times(weights[site.layer], routed)

    def _sized(self, matrix: Tensor, x: Stream, like: Stream) -> Stream:
        """A matrix times a stream, with the size of another one at every position."""
        moved = _times(matrix, x)
        size, own = (wide(self.seen(each)).square().mean(dim=-1, keepdim=True) for each in (like, moved))
        # At zero, as of a padding token's row, the root has no derivative.
        size = size.clamp_min(torch.finfo(size.dtype).tiny)
        return moved * (size.sqrt() / own.clamp_min(_SMALLEST).sqrt()).to(moved.dtype)


def _times(matrix: Tensor, x: Tensor) -> Tensor:
    with without_autocast(x):
        return F.linear(x, matrix.to(x.dtype))
