r"""A sink that every query sets itself: a linear map of what the branch reads.

    A_{t,k} = exp(s_{t,k}) / (exp(sink_{t,h}) + Σ_j exp(s_{t,j})),        sink_{t,h} = w_h . x_t;  w = 0 at initialisation
    so that A_t = softmax(s_t) * sigma(log Σ_j exp(s_{t,j}) - sink_{t,h})

Why: whether a head has something to find depends on the token; one number per head, as in `logit`, is right on average only. A
key bias b moves the scores of a row by W_q x_t . b / sqrt(d_k), which is such a map of x_t: where sink and queries read the
same input, and queries have no bias, rotation, clip or norm, w takes the key bias over, so that it is redundant again.

Source: Inkling 2, `sink_proj` in Transformers,
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/inkling2/modeling_inkling2.py.
Differs from the source: w starts at zero, in the source as its matrices do.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from addnorm.reduction import Reduction
from addnorm.shape import Shape
from addnorm.sink import Sinks, SinkSpec


@dataclass(frozen=True, kw_only=True)
class Query(SinkSpec):
    """One learned vector per layer and head."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(to={"sink": "constant"}),
            Reduction(parameters={"weight": 0.0}, to={"sink": {"kind": "logit", "start": 0.0}}),
        )

    def build(self, shape: Shape) -> "QuerySinks":
        return QuerySinks(shape)


class QuerySinks(Sinks):
    parameter_roles = {"weight": "hidden_matrix"}
    zeros: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape.depth, shape.heads, shape.width))
        self.register_buffer("zeros", torch.zeros(shape.heads), persistent=False)

    def logits(self, layer: int) -> Tensor:
        return self.zeros

    def of_queries(self, layer: int, x: Tensor) -> Tensor:
        return F.linear(x, self.weight[layer]).transpose(1, 2)
