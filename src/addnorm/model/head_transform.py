"""BERT's transform before the output matrix: norm(activation(W x + b)).

Source: Devlin et al. 2018, "BERT", arXiv:1810.04805; its code, `get_masked_lm_output`.
Differs from the source: nothing.
"""

from jaxtyping import Float
from torch import Tensor, nn

from addnorm.model.feed_forward import FUNCTIONS, PlainActivation
from addnorm.model.linear import Linear


class HeadTransform(nn.Module):
    """A square matrix with a bias, an activation and a norm."""

    def __init__(self, width: int, activation: PlainActivation, norm: nn.Module, *, std: float) -> None:
        super().__init__()
        self.activation = activation
        self.dense = Linear(width, width, bias=True, std=std)
        self.norm = norm

    def forward(self, x: Float[Tensor, "batch seq width"]) -> Float[Tensor, "batch seq width"]:
        return self.norm(FUNCTIONS[self.activation](self.dense(x)))
