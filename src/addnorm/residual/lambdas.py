r"""Weights of the stream and of the embeddings before every layer, connections across the depth, and a subtraction at the end.

    x <- lambda_l x + mu_l x_0        before layer l; x_0: embeddings
    x <- x + sigma(g_l) x_k        before layer l of the second half; x_k: output of layer L-1-l        if residual.skips
    x_last <- x_last - beta x_mid        x_mid: output of the middle layer        if residual.backout

lambda and mu run from the first to the last layer in equal steps at the start.

Why: deep layers see the tokens again, and what the middle of the model worked out is taken out before the head reads. Under
pre-norm without mu the lambdas alone change nothing: a factor of the stream is undone by the norm, and the branches' sizes can
take it over.

Source: K. Jordan et al. 2024, modded-nanogpt, https://github.com/KellerJordan/modded-nanogpt; A. Karpathy 2025, nanochat,
https://github.com/karpathy/nanochat (lambda 1.15 to 1.05, mu 0.20 to 0.05, beta 0.2).
Differs from the source: counted from 0, the middle layer is (L - 1) // 2.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from addnorm.reduction import Reduction
from addnorm.residual import Coefficients, Parts, Residual, ResidualSpec, Site, Stream, equal_steps
from addnorm.shape import Shape, first_sites, last_sites


@dataclass(frozen=True, kw_only=True)
class Lambdas(ResidualSpec):
    """Learned weights of the stream and of the embeddings."""

    stream_start: tuple[float, float] = (1.0, 1.0)
    """lambda of the first and of the last layer at the start."""
    embedding_start: tuple[float, float] = (0.0, 0.0)
    """mu of the first and of the last layer at the start."""
    skips: bool = False
    """True for connections from the first to the second half."""
    skip_start: float = -1.5
    """g of every connection at the start."""
    backout: bool = False
    """True to subtract the middle layer's output at the end."""
    backout_start: float = 0.2
    """beta at the start."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(to={"residual": "add"}),
            Reduction(settings={"backout": True, "backout_start": 0.0}, to={"residual": "add"}),
            Reduction(settings={"skips": True, "skip_start": -1000.0}, to={"residual": "add"}),
        )

    def build(self, shape: Shape, parts: Parts) -> "LambdasResidual":
        return LambdasResidual(parts, self)


class Mixed(NamedTuple):
    stream: Tensor
    embedding: Tensor
    kept: tuple[Tensor, ...]
    """Outputs of the layers so far that a later one or the close reads."""


class LambdasResidual(Residual):
    parameter_roles = {"stream": "scalar", "embedding": "scalar", "skip": "scalar", "backout": "scalar"}

    def __init__(self, parts: Parts, spec: Lambdas) -> None:
        super().__init__()
        self.first_sites, self.last_sites = first_sites(parts.sites), last_sites(parts.sites)
        depth = len(self.first_sites)
        self.middle = (depth - 1) // 2
        self.stream = nn.Parameter(equal_steps(*spec.stream_start, depth))
        self.embedding = nn.Parameter(equal_steps(*spec.embedding_start, depth))
        pairs = depth // 2
        self.skip = nn.Parameter(torch.full((pairs,), spec.skip_start)) if spec.skips and pairs else None
        self.backout = nn.Parameter(torch.tensor(spec.backout_start)) if spec.backout else None

    def coefficients(self) -> Coefficients:
        """Those of the same model with every lambda at 1, in which the branches' sizes have taken the lambdas over."""
        layers = list(range(len(self.first_sites)))
        size = self.stream.detach().cumprod(dim=0)  # of the stream in each layer, relative to that model's
        effective: Coefficients = {
            "stream": (layers, torch.ones_like(size)),
            "embedding": (layers, self.embedding.detach() / size),
        }
        if self.skip is not None:
            later = layers[-len(self.skip) :]
            earlier = [layers[-1] - layer for layer in later]
            effective["skip"] = (later, torch.sigmoid(self.skip.detach()) * size[earlier] / size[later])
        if self.backout is not None:
            effective["backout"] = ([self.middle], (self.backout.detach() * size[self.middle] / size[-1])[None])
        return effective

    def open(self, x: Stream) -> Mixed:
        return Mixed(x, x, ())

    def read(self, state: Mixed, site: Site) -> tuple[Stream, Mixed]:
        if site.index not in self.first_sites:
            return state.stream, state
        layer = site.layer
        stream = self.stream[layer] * state.stream + self.embedding[layer] * state.embedding
        depth, partner = len(self.first_sites), len(self.first_sites) - 1 - layer
        if self.skip is not None and partner < layer:
            stream = stream + torch.sigmoid(self.skip[layer - (depth - len(self.skip))]) * state.kept[partner]
        return stream, state._replace(stream=stream)

    def write(self, state: Mixed, y: Stream, site: Site) -> Mixed:
        stream = state.stream + y
        keeps = site.index in self.last_sites and (
            (self.skip is not None and site.layer < len(self.skip))
            or (self.backout is not None and site.layer <= self.middle)
        )
        return Mixed(stream, state.embedding, (*state.kept, stream) if keeps else state.kept)

    def view(self, state: Mixed) -> Stream:
        if self.backout is None or len(state.kept) <= self.middle:
            return state.stream
        return state.stream - self.backout * state.kept[self.middle]
