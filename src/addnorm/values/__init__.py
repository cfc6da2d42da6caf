"""Room of the value residuals: what joins a layer's own values before they are attended.

A layer's values are a linear map of its input. A sibling may join what earlier layers' maps gave at the same positions, or what
a table holds for the token. All of it acts position by position, so a cache of the joined values is all that decoding needs.

Example: the mean of this layer's values and those of the layer before it, as a plug-in file

    @dataclass(frozen=True, kw_only=True)
    class Averaged(ValuesSpec):
        @classmethod
        def reduces_to(cls) -> tuple[Reduction, ...]:
            return (Reduction(given={"depth": 1}, to={"values": "own"}),)

        def build(self, shape: Shape, *, vocab: int, std: float) -> "AveragedValues":
            return AveragedValues()

    class AveragedValues(Values):
        def sources(self, layer: int) -> tuple[int, ...]:
            return (layer - 1,) if layer else ()

        def join(self, layer: int, own: Tensor, earlier: Sequence[Tensor], x: Tensor, tokens: Tensor) -> Tensor:
            return (own + earlier[0]) / 2 if layer else own
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int64
from torch import Tensor, nn

from addnorm.catalogue import Spec
from addnorm.reduction import Reducible
from addnorm.roles import ParameterRole
from addnorm.shape import Shape

__all__ = ["LayerValues", "Values", "ValuesSpec"]

LayerValues = Float[Tensor, "batch kv_heads seq value_dim"]
"""Values of one layer.

Example:
    >>> import torch
    >>> isinstance(torch.zeros(1, 2, 5, 8), LayerValues)
    True
"""
Coefficients = dict[str, tuple[list[int], Float[Tensor, " entries"]]]


class Values(nn.Module, ABC):
    """A value residual. One instance serves all layers of a model; layers count from 0.

    Example:
        >>> import torch
        >>> class Averaged(Values):
        ...     def sources(self, layer):
        ...         return (layer - 1,) if layer else ()
        ...     def join(self, layer, own, earlier, x, tokens):
        ...         return (own + earlier[0]) / 2 if layer else own
        >>> own, tokens = torch.ones(1, 2, 5, 8), torch.arange(5)[None]
        >>> Averaged().join(1, own, [3 * own], x=torch.zeros(1, 5, 16), tokens=tokens).mean().item()
        2.0
    """

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {}
    """Role of each parameter, by name; see `addnorm.roles`. A parameter without a role is not treated as a matrix."""
    read: frozenset[int] = frozenset()
    """Layers in the `sources` of another one; the model sets them."""
    reads_keys: ClassVar[bool] = False
    """True if `join` takes two more arguments by name: `query`, the layer's queries [batch, heads, seq, head_dim], and `keys`,
    those of the layers in `sources` and then its own [batch, kv_heads, seq, head_dim]; all before they are rotated, which
    changes no product of one position's queries and keys."""
    frozen: bool = False
    """True while factors that depend on the values are constants for derivatives; see `seen`."""

    def sources(self, layer: int) -> tuple[int, ...]:
        """The earlier layers whose own values, before anything joined them, `join` reads at `layer`."""
        return ()

    @abstractmethod
    def join(
        self,
        layer: int,
        own: LayerValues | None,
        earlier: Sequence[LayerValues],
        x: Float[Tensor, "batch seq width"],
        tokens: Int64[Tensor, "batch seq"],
    ) -> LayerValues:
        """The values that the layer attends to.

        Args:
            layer: the layer.
            own: the layer's own values; None where the spec's `projects` says that it has none.
            earlier: those of the layers in `sources(layer)`, in their order.
            x: what the branch reads, after its norm.
            tokens: ids of the same positions.
        """

    def seen(self, x: Tensor) -> Tensor:
        """Return `x`, as a constant if `frozen`: a factor that depends on values is computed from it.

        With it, `addnorm.depth_matrix` finds how much of every layer's values is attended to.
        """
        return x.detach() if self.frozen else x

    def looked_up(self, layer: int, tokens: Int64[Tensor, "batch seq"]) -> LayerValues | None:
        """Return the values that a table holds for the tokens at this layer, before any weight; None without a table.

        With it, `addnorm.depth_matrix` finds the weight of the table.
        """
        return None

    def coefficients(self) -> Coefficients:
        """The effective coefficients: for every parameter, the layers of its entries and the coefficients there."""
        return {}


@dataclass(frozen=True, kw_only=True)
class ValuesSpec(Reducible, Spec):
    """Base of every value residual's specification.

    Example:
        >>> from addnorm.values.first import First
        >>> [First(weights="shared").projects(layer) for layer in range(3)]
        [True, False, False]
    """

    def projects(self, layer: int) -> bool:
        """True if the layer has a matrix for values of its own."""
        return True

    @property
    def reads_tokens(self) -> bool:
        """True if `join` reads the branch's input, queries, keys or the tokens; otherwise it joins earlier layers' values."""
        return False

    @abstractmethod
    def build(self, shape: Shape, *, vocab: int, std: float) -> Values | None:
        """Build the module; None if nothing joins.

        Args:
            shape: sizes; `shape.value_dim` is the width of one value head.
            vocab: number of tokens.
            std: standard deviation of the entries of the model's matrices at the start.
        """
