r"""Initial state: an attention branch reads a mixture of the stream and the embeddings, which the stream does not keep.

    h_l = lambda_l x + mu_l x_0        where the branch attends; x_0: embeddings, lambda = 1, mu = 0 at initialisation
    h_l = x        elsewhere
    x <- x + residual.alpha * f_l(h_l)

Why: attention finds the tokens themselves at any depth, and the stream stays a plain sum. Under a norm that reads h, only the
quotient of the two numbers and their sign matter.

Source: NeoMME, `NeoMMEEncoderLayer` (alpha is its `residual_multiplier`; norms without gains) in Transformers,
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/neomme/modeling_neomme.py.
Differs from the source: nothing. `lambdas` writes the same mixture into the stream.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from addnorm.reduction import Reduction
from addnorm.residual import Parts, Place, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class InitialState(ResidualSpec):
    """Two learned numbers per branch that attends."""

    alpha: float = 1.0
    """Factor of every branch's output."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(to={"residual": "add"}),
            Reduction(settings={"alpha": 0.5}, to={"residual": {"kind": "scale", "alpha": 0.5}}),
        )

    def build(self, shape: Shape, parts: Parts) -> "InitialStateResidual":
        return InitialStateResidual(parts.sites, self.alpha)


class WithEmbeddings(NamedTuple):
    stream: Tensor
    embeddings: Tensor


class InitialStateResidual(Residual):
    parameter_roles = {"mixture": "vector"}

    def __init__(self, sites: tuple[Place, ...], alpha: float) -> None:
        super().__init__()
        self.alpha = alpha
        mixed = [place.index for place in sites if place.role != "feedforward"]
        self.rows = {index: row for row, index in enumerate(mixed)}
        self.mixture = nn.Parameter(torch.tensor([1.0, 0.0]).repeat(len(mixed), 1))

    def open(self, x: Stream) -> WithEmbeddings:
        return WithEmbeddings(x, x)

    def read(self, state: WithEmbeddings, site: Site) -> tuple[Stream, WithEmbeddings]:
        row = self.rows.get(site.index)
        if row is None:
            return state.stream, state
        kept, initial = self.mixture[row].to(state.stream.dtype).unbind()
        return kept * state.stream + initial * state.embeddings, state

    def write(self, state: WithEmbeddings, y: Stream, site: Site) -> WithEmbeddings:
        return state._replace(stream=state.stream + (y if self.alpha == 1 else self.alpha * y))
