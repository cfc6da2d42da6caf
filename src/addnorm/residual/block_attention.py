r"""Block attention: every branch attends over normed sums of whole layers, and the attended values are the norms themselves.

    h_l = sum_i softmax_i(w_l . N(b_i) / sqrt(d)) N(b_i)        the first branch reads the embeddings as they are
    b_0 = embeddings;  b_i = sum of the outputs of block i, of residual.block layers or branches; the last one may be unfinished
    x = the same read, with a query of its own, at the close

N: divided by the root mean square; w = 0 at initialisation. In residual.separate layers, q, k and v have a w each.

Why: values of equal size, so that weights say how much is read; `attention` weighs sums as they are. With w = 0 it is not the
plain model: with blocks of one branch it is the plain sum under norms on embeddings and outputs (`peri`).

Source: Inkling 2, `Inkling2BlockAttentionResidual` (blocks of six layers; separate where attention is full) in Transformers,
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/inkling2/modeling_inkling2.py.
Differs from the source: nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from addnorm.fields import require, require_at_least, require_positive
from addnorm.kernels import reciprocal_rms, wide, without_autocast
from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, SeparateReads, Site, Stream
from addnorm.shape import Shape, first_sites


@dataclass(frozen=True, kw_only=True)
class BlockAttention(ResidualSpec):
    """A softmax over normed sums of blocks."""

    block: int = 6
    """Size of a block."""
    counts: Literal["layers", "branches"] = "layers"
    """Unit of the size."""
    separate: tuple[bool, ...] = (False,)
    """True for layers whose q, k and v read with a vector each; in turn, repeated over the depth. The first has one."""
    eps: float = 1e-6
    """Added to a source's mean square."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 1, "block")
        require(self, "separate", len(self.separate) > 0, "at least one switch")
        require_positive(self, "eps")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        settings, peri = {"block": 1, "counts": "branches", "eps": 1e-30}, {"residual": "add", "placement": "peri"}
        query = {"query": 0.0}
        return (Reduction(settings=settings, parameters=query, to=peri, equal="after the next norm"),)

    @property
    def separate_reads(self) -> bool:
        return any(self.separate)

    def refused_sockets(self) -> Mapping[str, str]:
        return {"stream": "every branch reads the whole history"}

    def build(self, shape: Shape, parts: Parts) -> "BlockAttentionResidual":
        return BlockAttentionResidual(shape.width, parts, self)


class Blocks(NamedTuple):
    finished: tuple[Tensor, ...]
    """Normed sums of the finished blocks."""
    unfinished: Tensor


class BlockAttentionResidual(Residual):
    parameter_roles = {"query": "vector"}

    def __init__(self, width: int, parts: Parts, spec: BlockAttention) -> None:
        super().__init__()
        self.eps = spec.eps
        places, self.close_row = parts.sites, len(parts.sites)
        starts = first_sites(places) if spec.counts == "layers" else range(len(places))
        self.starts = frozenset([*starts][:: spec.block])
        # Rows: per branch, for the close, and for keys and values of every branch that reads separately.
        self.rows = {place.index: [place.index] for place in places}
        chosen = [spec.separate[place.layer % len(spec.separate)] and place.role == "attention" for place in places]
        further = [place.index for place in places[1:] if chosen[place.index]]
        for number, index in enumerate(further):
            self.rows[index] += [self.close_row + 1 + 2 * number, self.close_row + 2 + 2 * number]
        self.query = nn.Parameter(torch.zeros(len(places) + 1 + 2 * len(further), width))

    def open(self, x: Stream) -> Blocks:
        return Blocks((), x)

    def read(self, state: Blocks, site: Site) -> tuple[Stream | SeparateReads, Blocks]:
        if site.index == 0:
            return state.unfinished, state
        reads = self._reads(state, self.rows[site.index])
        return (reads[0] if len(reads) == 1 else SeparateReads(*reads)), state

    def write(self, state: Blocks, y: Stream, site: Site) -> Blocks:
        # A block is left behind when the next one's first output arrives; until then its sum is the unfinished source.
        if site.index in self.starts:
            return Blocks((*state.finished, self._normed(state.unfinished)), y)
        return Blocks(state.finished, state.unfinished + y)

    def view(self, state: Blocks) -> Stream:
        return self._reads(state, [self.close_row])[0]

    def _normed(self, x: Tensor) -> Tensor:
        return x * reciprocal_rms(self.seen(x), self.eps).to(x.dtype)[..., None]

    def _reads(self, state: Blocks, rows: list[int]) -> list[Tensor]:
        sources = torch.stack((*state.finished, self._normed(state.unfinished)), dim=-2)
        with without_autocast(sources):
            # Stacked views: indexing by a list would copy the indices to the device and wait for the copy.
            queries = torch.stack([self.query[row] for row in rows]).to(sources.dtype) / sources.shape[-1] ** 0.5
            logits = torch.einsum("...sd,rd->...rs", self.seen(sources), queries)
            weights = torch.softmax(wide(logits), dim=-1).to(sources.dtype)
            return list(torch.matmul(weights, sources).unbind(dim=-2))
