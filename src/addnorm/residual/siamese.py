r"""Siamese norm: a post-norm stream and a pre-norm stream that share their branches.

    X <- N_post(X)
    h_l = X + N_pre(Y)
    X <- X + f_l(h_l) / sqrt(2 m)        m: layer, from 1
    Y <- Y + f_l(h_l)
    x = N_post(X) + N_pre(Y)        at the close, with norms of its own

Both streams start as the embeddings. The placement may put a norm of its own on h_l, as the source does.

Why: the pre-norm stream keeps an identity path for gradients, the post-norm stream keeps the size of what is read.

Source: Li et al. 2026, "SiameseNorm", arXiv:2602.08064, and its code, https://github.com/Qwen-Applications/SiameseNorm.
Differs from the source: nothing, with placement `pre`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

from torch import Tensor, nn

from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Siamese(ResidualSpec):
    """Two streams, normalised after and before the branches."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(
                parameters={"post.weight": 0.0, "post.bias": 0.0, "pre.weight": 1.0, "pre.bias": 0.0},
                given={"placement": "pre"},
                to={"residual": "add"},
                equal="after the next norm",
            ),
        )

    def refused_sockets(self) -> Mapping[str, str]:
        return {"stream": "one of its two streams has norms of its own, and the other has none"}

    def build(self, shape: Shape, parts: Parts) -> "SiameseResidual":
        return SiameseResidual(shape.width, parts)


class Pair(NamedTuple):
    post: Tensor
    pre: Tensor


class _Norms(nn.Module):
    """The norms of one read."""

    def __init__(self, width: int, parts: Parts) -> None:
        super().__init__()
        self.post, self.pre = parts.norm(width), parts.norm(width)


class SiameseResidual(Residual):
    def __init__(self, width: int, parts: Parts) -> None:
        super().__init__()
        self.reads = nn.ModuleList(_Norms(width, parts) for _ in range(len(parts.sites) + 1))

    def open(self, x: Stream) -> Pair:
        return Pair(x, x)

    def read(self, state: Pair, site: Site) -> tuple[Stream, Pair]:
        read = self._normed(state, site.index)
        return read.post + read.pre, Pair(read.post, state.pre)

    def write(self, state: Pair, y: Stream, site: Site) -> Pair:
        return Pair(state.post + y / (2 * (site.layer + 1)) ** 0.5, state.pre + y)

    def view(self, state: Pair) -> Stream:
        last = self._normed(state, -1)
        return last.post + last.pre

    def _normed(self, state: Pair, index: int) -> Pair:
        norms = cast(_Norms, self.reads[index])
        return Pair(norms.post(state.post), norms.pre(state.pre))
