r"""Orthogonal streams: several streams, which every branch turns into one another by a rotation of its own.

    h_l = sum_j pre_j X_j        X_j = embeddings at the entry
    X_i <- sum_j Q_ij X_j + post_i f_l(h_l)        Q = (I - A)^{-1} (I + A),  A = S - S^T
    S = D + s C rms(X)        s = 0.01, D = 0, C small at initialisation        if residual.dynamic
    S = D        D = 0 at initialisation        if not residual.dynamic
    x = sum_j c_j X_j        c = 1/n at initialisation

Why: a rotation keeps the sum of the streams' squares exactly, at any depth, and their differences too, which a doubly
stochastic matrix shrinks. It does not keep their mean: the close has weights of its own.

Source: 2026, "oHC", arXiv:2609.02672, and 2026, "JPmHC", arXiv:2605.06729 (Cayley), of which we have read the abstracts.
Differs from the source: reads and writes are those of `streams` with mixing `free`, without their dynamic terms.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.fields import require
from addnorm.kernels import wide
from addnorm.kernels.depth_mixing import normed_product_beside
from addnorm.reduction import Reduction
from addnorm.residual import Parts, ResidualSpec, Site, Stream
from addnorm.residual._streams import StreamsResidual, Wired
from addnorm.shape import Shape

_FACTOR = 0.01
_EPS = 1e-8


@dataclass(frozen=True, kw_only=True)
class OrthogonalStreams(ResidualSpec):
    """Several streams, mixed by rotations."""

    streams: int = 4
    """Number of streams."""
    dynamic: bool = True
    """True if rotations also depend on the streams."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "streams", self.streams >= 2, "at least 2")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        plain = {"residual": "add"}
        return (
            Reduction(settings={"dynamic": False}, to=plain),
            Reduction(
                parameters={"angle": 0.0, "factor": 0.0, "pre": "start", "post": "start", "last": "start"}, to=plain
            ),
        )

    def refused_sockets(self) -> Mapping[str, str]:
        return {"stream": "there is more than one stream"}

    def build(self, shape: Shape, parts: Parts) -> "OrthogonalStreamsResidual":
        return OrthogonalStreamsResidual(shape.width, len(parts.sites), self, parts.std)


class OrthogonalStreamsResidual(StreamsResidual):
    parameter_roles = {
        "pre": "vector",
        "post": "vector",
        "last": "vector",
        "angle": "vector",
        "weight": "hidden_matrix",
        "factor": "scalar",
    }
    upper: Tensor

    def __init__(self, width: int, sites: int, spec: OrthogonalStreams, std: float) -> None:
        super().__init__(spec.streams)
        self.std = std
        self.register_buffer("upper", torch.triu_indices(spec.streams, spec.streams, 1), persistent=False)
        angles = self.upper.shape[1]
        self.pre = nn.Parameter(torch.eye(spec.streams)[torch.arange(sites) % spec.streams])
        self.post = nn.Parameter(torch.ones(sites, spec.streams))
        self.last = nn.Parameter(torch.full((spec.streams,), 1 / spec.streams))
        self.angle = nn.Parameter(torch.zeros(sites, angles))
        self.weight = nn.Parameter(torch.empty(sites, angles, spec.streams * width)) if spec.dynamic else None
        self.factor = nn.Parameter(torch.full((sites,), _FACTOR)) if spec.dynamic else None

    def initialise(self, name: str, generator: torch.Generator) -> None:
        if name == "weight" and self.weight is not None:
            nn.init.normal_(self.weight, std=self.std, generator=generator)

    def weights(self, streams: Tensor, site: Site, rows: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        dtype, angle = streams.dtype, wide(self.angle[site.index])
        if rows is not None and self.factor is not None:
            moved, flat = normed_product_beside(streams.flatten(-2), rows, _EPS)
            streams = flat.unflatten(-1, (self.streams, -1))
            angle = angle + wide(self.factor[site.index]) * moved
        mix = self.rotation(angle).to(dtype)
        post = self.post[site.index].to(dtype).expand(mix.shape[:-1])  # as many positions as the rotation has
        return self.pre[site.index].to(dtype), mix, post, streams

    def rotation(self, angle: Tensor) -> Tensor:
        """The Cayley transform of the skew matrix whose entries above the diagonal these are."""
        # I - A has the eigenvalues 1 - i t, so that it can be inverted whatever the angles; -1 is the one eigenvalue that no
        # Cayley transform has. Both factors commute, so that solving from the left gives (I + A)(I - A)^{-1} too.
        square = angle.new_zeros(*angle.shape[:-1], self.streams, self.streams)
        square[..., self.upper[0], self.upper[1]] = angle
        skew, identity = square - square.mT, torch.eye(self.streams, dtype=angle.dtype, device=angle.device)
        # I - A can always be inverted. `solve` would ask the device whether it could, and the host would wait for the answer.
        return torch.linalg.solve_ex(identity - skew, identity + skew).result

    def view(self, state: Wired) -> Stream:
        streams = state.streams
        return torch.einsum("...sd,s->...d", streams, self.last.to(streams.dtype))
