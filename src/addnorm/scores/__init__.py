"""Room of the score residuals: how attention scores of earlier layers join layer m's.

Layer m attends with softmax( sum_i s_{m,i} Q_i K_i^T + position bias + mask ) V_m, where i runs over the last
`terms(m)` layers. Scores are summed first; position bias, mask and soft-cap are applied once to the sum. A sibling says how
many layers join and with which weights; the engine (`kernels/grouped_attention`) does the rest without an s x s matrix.

Learned positive numbers a are kept as a = exp(alpha) with alpha learned, as in Kuang (2025).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from addnorm.catalogue import Spec
from addnorm.errors import InputError
from addnorm.roles import ParameterRole
from addnorm.shape import Shape

__all__ = ["Keys", "Queries", "Scores", "ScoresSpec", "SharedScores", "Weights", "WindowedScores", "WindowedSpec"]

Queries = Float[Tensor, "batch heads seq head_dim"]
Keys = Float[Tensor, "batch kv_heads seq head_dim"]
Coefficients = dict[str, tuple[list[int], Float[Tensor, " entries"]]]
Weights = tuple[float, ...] | Float[Tensor, " terms"] | Float[Tensor, "heads terms"]


class Scores(nn.Module, ABC):
    """A score residual. One instance serves all layers of a model; layers count from 0."""

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {}
    """What its parameters are, by name; see `addnorm.roles`. Without a role none of them is taken for a matrix."""

    def terms(self, layer: int) -> int:
        """How many of the most recent layers' scores join at `layer`, its own included."""
        return layer + 1

    @abstractmethod
    def weights(self, layer: int) -> Weights:
        """s_{m,i} for the joining layers, earliest first. Constants are Python numbers, learned ones a tensor."""

    def shared_weight(self, layer: int) -> float | Float[Tensor, ""] | None:
        """The one weight of all layers up to this one; None for a kind where each has its own, or where not all join.

        A running sum of scores then serves every layer, which some ways of computing them make use of.
        """
        return None

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


class SingleTermScores(Scores):
    """One layer's queries and keys, with the usual scale 1/sqrt(d_k)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.scale = shape.head_dim**-0.5

    def terms(self, layer: int) -> int:
        return 1

    def weights(self, layer: int) -> Weights:
        return (self.scale,)


@dataclass(frozen=True, kw_only=True)
class ScoresSpec(Spec):
    """Base of every score residual's configuration."""

    @abstractmethod
    def build(self, shape: Shape) -> Scores:
        """The module."""


@dataclass(frozen=True, kw_only=True)
class WindowedSpec(ScoresSpec):
    """Base of the score residuals that join the scores of all layers so far, or of the last few.

    Raises:
        InputError: a window below 1.
    """

    window: int | None = None
    """How many of the most recent layers join, the present one included; None for all. Wherever a formula counts the
    layers (m), it counts the joining ones. Bounds the cost of deep models: exact recomputation grows with depth squared."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is not None and self.window < 1:
            raise InputError(f"{self.kind}.window must be at least 1, or null for all layers; got {self.window}.")


class WindowedScores(Scores, ABC):
    """The scores of the last `window` layers, the present one included."""

    def __init__(self, window: int | None) -> None:
        super().__init__()
        self.window = window

    def terms(self, layer: int) -> int:
        return layer + 1 if self.window is None else min(layer + 1, self.window)


class SharedScores(WindowedScores, ABC):
    """Scores of several layers that all get one weight."""

    @abstractmethod
    def weight(self, layer: int) -> float | Float[Tensor, ""]:
        """The weight of every joining layer."""

    def weights(self, layer: int) -> Weights:
        weight, count = self.weight(layer), self.terms(layer)
        return weight.expand(count) if isinstance(weight, Tensor) else (weight,) * count

    def shared_weight(self, layer: int) -> float | Float[Tensor, ""] | None:
        return self.weight(layer) if self.window is None else None
