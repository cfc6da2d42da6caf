r"""Dynamic depth averages: every position weighs the layers so far, for queries, keys, values and stream separately.

    X_{l+1} = layer_l(x_l)        X_0: embeddings
    alpha = W2 gelu(W1 rms(X_{l+1})) + b        W2 = 0, b_i = [i = l+1] at initialisation
    x_{l+1} = sum_{i<=l+1} alpha_i X_i
    q, k and v of the next layer read averages of their own        if residual.reads is separate

Why: which layer is worth reading depends on the token, and differs between what a position asks, offers and passes on.

Source: Xiao et al. 2025, "MUDDFormer", arXiv:2502.12170.
Differs from the source: norms inside are RMS without a gain; layer 1 reads the embeddings alone, unweighted; the three separate
inputs share the branch's input norm.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.kernels import without_autocast
from addnorm.reduction import Reduction
from addnorm.residual import Parts, Read, Residual, ResidualSpec, SeparateReads, Site, Stream
from addnorm.shape import Shape, last_sites

_EPS = 1e-8


@dataclass(frozen=True, kw_only=True)
class DynamicDense(ResidualSpec):
    """An average over the layers so far that depends on the position."""

    reads: Literal["separate", "one"] = "separate"
    """Averages of their own for queries, keys and values, or one for all."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        plain, ways = {"residual": "add"}, ({"reads": "separate"}, {"reads": "one"})
        at_start = [Reduction(settings=way, to=plain) for way in ways]
        static = [Reduction(settings=way, parameters={"down": 0.0, "static": "start"}, to=plain) for way in ways]
        return (*at_start, *static)

    @property
    def separate_reads(self) -> bool:
        return self.reads == "separate"

    def refused_sockets(self) -> Mapping[str, str]:
        return {"stream": "the average is taken over streams that no norm has changed"}

    def build(self, shape: Shape, parts: Parts) -> "DynamicDenseResidual":
        return DynamicDenseResidual(shape.width, parts, ways=4 if self.separate_reads else 1)


class Layers(NamedTuple):
    stream: Tensor
    outputs: tuple[Tensor, ...]
    """The embeddings, and the output of every layer so far."""
    reads: SeparateReads | None
    """Inputs of the next attention, if they are separate."""


class _Weights(nn.Module):
    """Weights of the outputs so far, for each way to read them."""

    parameter_roles = {"up": "hidden_matrix", "down": "hidden_matrix", "static": "vector"}

    def __init__(self, width: int, ways: int, outputs: int, std: float) -> None:
        super().__init__()
        self.std = std
        self.up = nn.Parameter(torch.empty(ways * outputs, width))
        self.down = nn.Parameter(torch.zeros(ways * outputs, ways * outputs))
        self.static = nn.Parameter(torch.zeros(ways, outputs))
        with torch.no_grad():
            self.static[:, -1] = 1

    def initialise(self, name: str, generator: torch.Generator) -> None:
        if name == "up":
            nn.init.normal_(self.up, std=self.std, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(F.linear(F.rms_norm(x, x.shape[-1:], eps=_EPS), self.up.to(x.dtype)))
        moved = F.linear(hidden, self.down.to(x.dtype)).unflatten(-1, self.static.shape)
        return moved + self.static.to(x.dtype)  # [batch, seq, ways, outputs]


class DynamicDenseResidual(Residual):
    def __init__(self, width: int, parts: Parts, ways: int) -> None:
        super().__init__()
        self.last_sites = last_sites(parts.sites)
        depth = len(self.last_sites)
        self.layers = nn.ModuleList(
            _Weights(width, ways if layer + 1 < depth else 1, layer + 2, parts.std) for layer in range(depth)
        )

    def open(self, x: Stream) -> Layers:
        return Layers(x, (x,), None)

    def read(self, state: Layers, site: Site) -> tuple[Read, Layers]:
        if site.role == "attention" and state.reads is not None:
            return state.reads, state._replace(reads=None)
        return state.stream, state

    def write(self, state: Layers, y: Stream, site: Site) -> Layers:
        stream = state.stream + y
        if site.index not in self.last_sites:
            return state._replace(stream=stream)
        outputs = (*state.outputs, stream)
        weights = self.layers[site.layer](self.seen(stream))
        # The average is over what layers wrote before any average was taken: averages of averages would be another wiring. The
        # last of the ways is the stream that goes on, the first three are what the next attention alone reads.
        vectors = torch.stack(outputs)
        with without_autocast(vectors):
            mixed = torch.einsum("...wn,n...d->w...d", weights.to(vectors.dtype), vectors)
        return Layers(mixed[-1], outputs, SeparateReads(*mixed[:-1]) if len(mixed) > 1 else None)
