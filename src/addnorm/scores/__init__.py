"""Room of the score residuals: how attention scores of earlier layers join layer m's.

Layer m attends with softmax( sum_i s_{m,i} Q_i K_i^T + position bias + mask ) V_m, where i runs over the last
`terms(m)` layers. Scores are summed first; position bias, mask and soft-cap are applied once to the sum. A sibling says how
many layers join and with which weights; the engine (`kernels/grouped_attention`) does the rest without an s x s matrix.

Learned positive numbers a are kept as a = exp(alpha) with alpha learned, as in source 003.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from addnorm.catalogue import Spec
from addnorm.shape import Shape

Queries = Float[Tensor, "batch heads seq head_dim"]
Keys = Float[Tensor, "batch kv_heads seq head_dim"]
Coefficients = dict[str, tuple[list[int], Float[Tensor, " entries"]]]
Weights = tuple[float, ...] | Float[Tensor, " terms"] | Float[Tensor, "heads terms"]


class Scores(nn.Module, ABC):
    """A score residual. One instance serves all layers of a model; layers count from 0."""

    def terms(self, layer: int) -> int:
        """How many of the most recent layers' scores join at `layer`, its own included."""
        return layer + 1

    @abstractmethod
    def weights(self, layer: int) -> Weights:
        """s_{m,i} for the joining layers, earliest first. Constants are Python numbers, learned ones a tensor."""

    def coefficients(self) -> Coefficients:
        """What each learned number leads to: for every parameter, the layers of its entries and the weights s_{m,i} there.

        Parameters of one number per layer, and lists with one vector per layer, are known; a sibling of another form says
        so itself.
        """
        found: Coefficients = {}
        for name, parameter in self.named_parameters():
            last = name.rpartition(".")[2]
            layers = [int(last)] * parameter.numel() if last.isdigit() else list(range(parameter.numel()))
            weights = [torch.as_tensor(self.weights(layer)).detach() for layer in sorted(set(layers))]
            values = weights[0] if last.isdigit() else torch.stack([weight.flatten()[-1] for weight in weights])
            found[name] = (layers, values)
        return found

    def merge(self, query: Queries, key: Keys, before: tuple[Queries, Keys] | None) -> tuple[Queries, Keys]:
        """What a layer hands on as its queries and keys, given what the layer before handed on."""
        return query, key


@dataclass(frozen=True, kw_only=True)
class ScoresSpec(Spec):
    """Base of every score residual's configuration."""

    @abstractmethod
    def build(self, shape: Shape) -> Scores:
        """The module."""
