"""Room of the score residuals: how attention scores of earlier layers join layer m's.

Layer m attends with softmax( sum_i s_{m,i} Q_i K_i^T + position bias + mask ) V_m, where i runs over the last
`terms(m)` layers. Scores are summed first; position bias, mask and soft-cap are applied once to the sum. A sibling defines
how many layers join and with which weights; `kernels/grouped_attention` computes the attention without a seq x seq matrix.

Learned positive numbers a are stored as a = exp(alpha) with alpha learned, as in Kuang (2025).

Example: the scores of this layer and the one before it, with equal weights, as a plug-in file

    @dataclass(frozen=True, kw_only=True)
    class LastTwo(ScoresSpec):
        @classmethod
        def reduces_to(cls) -> tuple[Reduction, ...]:
            return (Reduction(to={"scores": {"kind": "sum", "window": 2}}),)

        def build(self, shape: Shape) -> "LastTwoScores":
            return LastTwoScores(shape)

    class LastTwoScores(Scores):
        def __init__(self, shape: Shape) -> None:
            super().__init__()
            self.scale = shape.head_dim**-0.5

        def terms(self, layer: int) -> int:
            return min(layer + 1, 2)

        def weights(self, layer: int) -> tuple[float, ...]:
            return (self.scale,) * self.terms(layer)
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
from addnorm.reduction import Reducible, Reduction
from addnorm.roles import ParameterRole
from addnorm.shape import Shape

__all__ = ["Keys", "Queries", "Scores", "ScoresSpec", "SharedScores", "Weights", "WindowedScores", "WindowedSpec"]

Queries = Float[Tensor, "batch heads seq head_dim"]
"""Queries of one layer.

Example:
    >>> isinstance(torch.zeros(1, 4, 5, 8), Queries)
    True
"""
Keys = Float[Tensor, "batch kv_heads seq head_dim"]
"""Keys of one layer.

Example:
    >>> isinstance(torch.zeros(1, 2, 5, 8), Keys)
    True
"""
Coefficients = dict[str, tuple[list[int], Float[Tensor, " entries"]]]
Weights = tuple[float, ...] | Float[Tensor, " terms"] | Float[Tensor, "heads terms"]
"""Weights of the joining layers, earliest first: numbers, or learned ones for all heads or for each.

Example:
    >>> from addnorm.scores.sum import Sum
    >>> shape = Shape(width=16, depth=3, heads=1, kv_heads=1, hidden=32, max_seq=8)
    >>> weights: Weights = Sum().build(shape).weights(2)
    >>> weights
    (0.25, 0.25, 0.25)
"""


class Scores(nn.Module, ABC):
    """A score residual. One instance serves all layers of a model; layers count from 0.

    Example:
        >>> class LastTwo(Scores):
        ...     def terms(self, layer):
        ...         return min(layer + 1, 2)
        ...     def weights(self, layer):
        ...         return (0.25,) * self.terms(layer)
        >>> LastTwo().looks_back(0), LastTwo().looks_back(1)
        (False, True)
    """

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {}
    """Role of each parameter, by name; see `addnorm.roles`. A parameter without a role is not treated as a matrix."""

    def terms(self, layer: int) -> int:
        """Number of the most recent layers whose scores join at `layer`, its own included."""
        return layer + 1

    @abstractmethod
    def weights(self, layer: int) -> Weights:
        """s_{m,i} for the joining layers, earliest first. Constants are Python numbers, learned ones a tensor."""

    def shared_weight(self, layer: int) -> float | Float[Tensor, ""] | None:
        """The weight that all layers up to this one share; None if weights differ, or if not all layers join.

        With a shared weight, one running sum of scores serves every layer, which some implementations use.
        """
        return None

    def coefficients(self) -> Coefficients:
        """The effective weights: for every parameter, the layers of its entries and the weights s_{m,i} there.

        The base class covers parameters with one number per layer, and lists with one vector per layer; a sibling of another
        form overrides this method.
        """
        effective: Coefficients = {}
        for name, parameter in self.named_parameters():
            last = name.rpartition(".")[2]
            layers = [int(last)] * parameter.numel() if last.isdigit() else list(range(parameter.numel()))
            weights = [torch.as_tensor(self.weights(layer)).detach() for layer in sorted(set(layers))]
            values = weights[0] if last.isdigit() else torch.stack([weight.flatten()[-1] for weight in weights])
            effective[name] = (layers, values)
        return effective

    def merge(self, query: Queries, key: Keys, before: tuple[Queries, Keys] | None) -> tuple[Queries, Keys]:
        """Queries and keys that a layer passes on as its own, given those that the layer before passed on."""
        return query, key

    def looks_back(self, layer: int) -> bool:
        """True if a layer's scores need what earlier layers passed on."""
        return self.terms(layer) > 1 or type(self).merge is not Scores.merge


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
class ScoresSpec(Reducible, Spec):
    """Base of every score residual's specification.

    Example:
        >>> from addnorm.scores.mean import Mean
        >>> addnorm.preset("base", scores=Mean()) == addnorm.preset("base", scores="mean")
        True
    """

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return ()  # plug-ins of version 0.1 say nothing

    @abstractmethod
    def build(self, shape: Shape) -> Scores:
        """Build the module."""


@dataclass(frozen=True, kw_only=True)
class WindowedSpec(ScoresSpec):
    """Base of the score residuals that join the scores of all layers so far, or of the last few.

    Raises:
        InputError: a window below 1.

    Example:
        >>> from addnorm.scores.sum import Sum
        >>> shape = Shape(width=16, depth=4, heads=1, kv_heads=1, hidden=32, max_seq=8)
        >>> [Sum(window=2).build(shape).terms(layer) for layer in range(4)]
        [1, 2, 2, 2]
    """

    window: int | None = None
    """Number of most recent layers that join, the present one included; None for all. Where a formula counts layers (m), it
    counts the joining ones. A window bounds the cost of deep models: exact recomputation grows with depth squared."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is not None and self.window < 1:
            raise InputError(f"{self.kind}.window: expected at least 1, or null for all layers, got {self.window}.")


class WindowedScores(Scores, ABC):
    """The scores of the last `window` layers, the present one included.

    Example:
        >>> class Halved(WindowedScores):
        ...     def weights(self, layer):
        ...         return tuple(0.5**age for age in reversed(range(self.terms(layer))))
        >>> Halved(window=3).weights(5)
        (0.25, 0.5, 1.0)
    """

    def __init__(self, window: int | None) -> None:
        super().__init__()
        self.window = window

    def terms(self, layer: int) -> int:
        return layer + 1 if self.window is None else min(layer + 1, self.window)


class SharedScores(WindowedScores, ABC):
    """Scores of several layers that all get one weight.

    Example:
        >>> class Mean(SharedScores):
        ...     def weight(self, layer):
        ...         return 1 / self.terms(layer)
        >>> Mean(window=None).weights(1)
        (0.5, 0.5)
    """

    @abstractmethod
    def weight(self, layer: int) -> float | Float[Tensor, ""]:
        """The weight of every joining layer."""

    def weights(self, layer: int) -> Weights:
        weight, count = self.weight(layer), self.terms(layer)
        return weight.expand(count) if isinstance(weight, Tensor) else (weight,) * count

    def shared_weight(self, layer: int) -> float | Float[Tensor, ""] | None:
        return self.weight(layer) if self.window is None else None
