"""Residuals of several streams, by the form of the weights with which they are read, mixed and written."""

from abc import abstractmethod
from itertools import permutations
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from addnorm.kernels import wide, without_autocast
from addnorm.kernels.depth_mixing import normed_product_beside, read_streams, sinkhorn, write_streams
from addnorm.residual import Residual, Site, Stream

Mixing = Literal["free", "sinkhorn", "permutations", "identity"]
_FACTOR = 0.01
_EPS = 1e-8


class Wired(NamedTuple):
    streams: Tensor
    """[batch, seq, streams, width]"""
    mix: Tensor | None = None
    """Weights of the streams in each stream, between read and write; None for the identity."""
    post: Tensor | None = None
    """Weight of the branch's output in each stream, between read and write."""
    rows: tuple[Tensor, ...] = ()
    """The matrices of all sites, of a dynamic form: taken apart once, so that the backward pass puts their gradients together
    once instead of adding up, at every site, zeros of the size of all."""


class StreamsResidual(Residual):
    """Base of all forms: given the weights of a site, streams are read and written alike."""

    def __init__(self, streams: int) -> None:
        super().__init__()
        self.streams = streams

    weight: nn.Parameter | None

    def open(self, x: Stream) -> Wired:
        streams = x.unsqueeze(-2).expand(*x.shape[:-1], self.streams, x.shape[-1])
        return Wired(streams, rows=() if self.weight is None else self.weight.unbind())

    @abstractmethod
    def weights(self, streams: Tensor, site: Site, rows: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        """pre [.. streams], mix [.. target source] or None, post [.. streams] of a site; and the streams, for what reads them
        next."""

    def read(self, state: Wired, site: Site) -> tuple[Stream, Wired]:
        # The streams are used three times at a site: for the weights, the read, and the mixing in `write`. Each use returns
        # them for the next one, so that autograd adds the three gradients up inside the kernels, instead of in two more passes
        # over [batch, seq, streams, width]. Frozen weights are computed from a detached copy, which must not be handed on:
        # the streams would lose their gradient.
        with without_autocast(state.streams):
            seen = self.seen(state.streams)
            pre, mix, post, again = self.weights(seen, site, state.rows[site.index] if state.rows else None)
            read, streams = read_streams(again if seen is state.streams else state.streams, pre)
        return read, Wired(streams, mix, post, state.rows)

    def write(self, state: Wired, y: Stream, site: Site) -> Wired:
        assert state.post is not None  # set by the read at the same site
        return Wired(write_streams(state.streams, state.mix, state.post, y), rows=state.rows)

    def view(self, state: Wired) -> Stream:
        return state.streams.mean(dim=-2)


class FreeStreams(StreamsResidual):
    parameter_roles = {"pre": "vector", "mix": "table", "post": "vector", "weight": "hidden_matrix", "factor": "scalar"}

    def __init__(self, width: int, sites: int, streams: int, *, dynamic: bool) -> None:
        super().__init__(streams)
        # Site l reads stream l mod n, so that a gradient tells the streams apart: with equal rows they would stay
        # equal for ever.
        self.pre = nn.Parameter(torch.eye(streams)[torch.arange(sites) % streams])
        self.mix = nn.Parameter(torch.eye(streams).repeat(sites, 1, 1))
        self.post = nn.Parameter(torch.ones(sites, streams))
        # Of each stream: its weight in the read, the weight of the output in it, its weight in every stream.
        self.weight = nn.Parameter(torch.zeros(sites, streams + 2, width)) if dynamic else None
        self.factor = nn.Parameter(torch.full((sites, 3), _FACTOR)) if dynamic else None

    def weights(self, streams: Tensor, site: Site, rows: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        dtype = streams.dtype
        pre, mix, post = (part[site.index].to(dtype) for part in (self.pre, self.mix, self.post))
        if rows is None or self.factor is None:
            return pre, mix, post, streams
        products, streams = normed_product_beside(streams, rows, _EPS)
        moved = torch.tanh(products).to(dtype)  # [.. streams, streams + 2]
        factor = self.factor[site.index].to(dtype)
        return (
            pre + factor[0] * moved[..., 0],
            mix + factor[2] * moved[..., 2:].transpose(-1, -2),
            post + factor[1] * moved[..., 1],
            streams,
        )


class BalancedStreams(StreamsResidual):
    parameter_roles = {"offset": "vector", "weight": "hidden_matrix", "factor": "scalar"}
    permutations: Tensor

    norm_eps = _EPS
    """Added to the mean square of all streams, where weights depend on them."""
    read_eps = 0.0
    """Added to the weights of the read, and to what `sinkhorn` divides."""
    write_eps = 0.0
    """Added to the weights of the write."""
    magnitude = 2.0
    """Upper bound of the weights of the write, before that."""

    def __init__(
        self, width: int, sites: int, streams: int, mixing: Mixing, rounds: int, *, dynamic: bool, std: float
    ) -> None:
        super().__init__(streams)
        self.mixing, self.rounds, self.std = mixing, rounds, std
        mixed = {"sinkhorn": streams**2, "identity": 0}
        if mixing == "permutations":
            self.register_buffer("permutations", permutation_matrices(streams), persistent=False)
            mixed["permutations"] = len(self.permutations)
        self.sizes = [streams, streams, mixed[mixing]]
        self.offset = nn.Parameter(torch.zeros(sites, sum(self.sizes)))
        self.weight = nn.Parameter(torch.empty(sites, sum(self.sizes), streams * width)) if dynamic else None
        self.factor = nn.Parameter(torch.full((sites, 3), _FACTOR)) if dynamic else None

    def initialise(self, name: str, generator: torch.Generator) -> None:
        if name == "weight" and self.weight is not None:
            nn.init.normal_(self.weight, std=self.std, generator=generator)

    def weights(self, streams: Tensor, site: Site, rows: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
        # Logits in float32 at least: exp and twenty rounds of division in bfloat16 leave rows that add up to 1 only within
        # 0.4 %, and the product of such matrices over the depth no longer keeps the streams' mean.
        pre, post, mixed = wide(self.offset[site.index]).split(self.sizes)
        if rows is not None and self.factor is not None:
            moved, flat = normed_product_beside(streams.flatten(-2), rows, self.norm_eps)
            streams = flat.unflatten(-1, (self.streams, -1))
            factor = wide(self.factor[site.index])
            of_pre, of_post, of_mixed = moved.split(self.sizes, dim=-1)
            pre, post, mixed = pre + factor[0] * of_pre, post + factor[1] * of_post, mixed + factor[2] * of_mixed
        dtype = streams.dtype
        mix = None if self.mixing == "identity" else self._matrix(mixed).to(dtype)
        pre, post = torch.sigmoid(pre), self.magnitude * torch.sigmoid(post)
        if self.read_eps or self.write_eps:
            pre, post = pre + self.read_eps, post + self.write_eps
        return pre.to(dtype), mix, post.to(dtype), streams

    def _matrix(self, mixed: Tensor) -> Tensor:
        if self.mixing == "permutations":
            matrices = self.permutations.to(mixed.dtype).flatten(1)
            return torch.matmul(torch.softmax(mixed, dim=-1), matrices).unflatten(-1, (self.streams, self.streams))
        # Streams lead, positions follow: a round then divides contiguous rows of positions, not n x n blocks of memory.
        square = mixed.unflatten(-1, (self.streams, self.streams))
        return sinkhorn(square.movedim((-2, -1), (0, 1)), self.rounds, self.read_eps).movedim((0, 1), (-2, -1))


def permutation_matrices(streams: int) -> Float[Tensor, "permutations streams streams"]:
    """Make every permutation matrix; the first is the identity."""
    return torch.stack([torch.eye(streams)[list(order)] for order in permutations(range(streams))])
