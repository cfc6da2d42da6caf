r"""Cross-layer reads: every input is a sum of all earlier outputs, each times a number that depends on it.

    h = sum_{t<=l} (b_t + relu(w_t . rms(g_t))) * g_t        g_0: embeddings; g_t: output of branch t
    q, k and v read sums of their own        if residual.reads is separate

b starts at one, w at small random numbers. The close is one more read.

Why: a branch chooses, token by token, which earlier outputs to strengthen; the static part starts as the plain sum.

Source: Heddes et al. 2025, "DeepCrossAttention", arXiv:2502.06785 (b a vector, w . g a number); Gerasimov et al. 2025, "LIMe",
arXiv:2502.09245 (layers that read all earlier ones).
Differs from the source: w starts at small random numbers instead of zero, where the derivative of relu is zero and w would
never move; norms inside are RMS without a gain.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from addnorm.kernels import reciprocal_rms, wide, without_autocast
from addnorm.reduction import Reduction
from addnorm.residual import Parts, Read, Residual, ResidualSpec, SeparateReads, Site, Stream
from addnorm.shape import Shape

_EPS = 1e-8


@dataclass(frozen=True, kw_only=True)
class Cross(ResidualSpec):
    """A gated sum over the outputs so far."""

    reads: Literal["separate", "one"] = "separate"
    """Sums of their own for queries, keys and values, or one for all."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return tuple(
            Reduction(settings={"reads": reads}, parameters={"static": 1.0, "gate": 0.0}, to={"residual": "add"})
            for reads in ("separate", "one")
        )

    @property
    def separate_reads(self) -> bool:
        return self.reads == "separate"

    def refused_sockets(self) -> Mapping[str, str]:
        return {"stream": "every branch reads the whole history, so that there is no stream between branches"}

    def build(self, shape: Shape, parts: Parts) -> "CrossResidual":
        return CrossResidual(shape.width, parts, separate=self.separate_reads)


class Outputs(NamedTuple):
    vectors: tuple[Tensor, ...]
    """The embeddings, and the output of every branch so far."""
    reciprocals: tuple[Tensor, ...]
    """Of the vectors' root mean squares."""


class _Gates(nn.Module):
    """The factors of the outputs so far, for each way to read them."""

    parameter_roles = {"static": "vector", "gate": "vector"}

    def __init__(self, width: int, ways: int, outputs: int, std: float) -> None:
        super().__init__()
        self.std = std
        self.static = nn.Parameter(torch.ones(ways, outputs, width))
        self.gate = nn.Parameter(torch.empty(ways, outputs, width))

    def initialise(self, name: str, generator: torch.Generator) -> None:
        if name == "gate":
            nn.init.normal_(self.gate, std=self.std, generator=generator)

    def mixed(self, vectors: Tensor, seen: Tensor, reciprocals: Tensor) -> Tensor:
        """[outputs, …, width] to [ways, …, width].

        The factors depend on `seen` and the reciprocals of its root mean squares, [outputs, …].
        """
        dtype = vectors.dtype
        with without_autocast(vectors):
            gate, static = (
                part[:, : len(vectors)].to(dtype) for part in (self.gate, self.static)
            )  # the close may be early
            # gate . (v / rms) as (gate . v) / rms: normalising first would write a copy of all outputs at each read.
            along = wide(torch.einsum("wnd,n...d->wn...", gate, seen)) * reciprocals
            moved = torch.einsum("wn...,n...d->w...d", torch.relu(along).to(dtype), vectors)
            return moved + torch.einsum("wnd,n...d->w...d", static, vectors)


class CrossResidual(Residual):
    def __init__(self, width: int, parts: Parts, *, separate: bool) -> None:
        super().__init__()
        ways = [3 if separate and place.role == "attention" and place.index else 1 for place in parts.sites] + [1]
        self.gates = nn.ModuleList(_Gates(width, ways[index], index + 1, parts.std) for index in range(len(ways)))

    def open(self, x: Stream) -> Outputs:
        return Outputs((x,), (reciprocal_rms(x, _EPS),))

    def read(self, state: Outputs, site: Site) -> tuple[Read, Outputs]:
        mixed = self._mixed(state, site.index)
        return mixed[0] if len(mixed) == 1 else SeparateReads(*mixed), state

    def write(self, state: Outputs, y: Stream, site: Site) -> Outputs:
        return Outputs((*state.vectors, y), (*state.reciprocals, reciprocal_rms(y, _EPS)))

    def view(self, state: Outputs) -> Stream:
        return self._mixed(state, -1)[0]

    def _mixed(self, state: Outputs, index: int) -> Tensor:
        vectors, reciprocals = torch.stack(state.vectors), torch.stack(state.reciprocals)
        return cast(_Gates, self.gates[index]).mixed(vectors, self.seen(vectors), self.seen(reciprocals))
