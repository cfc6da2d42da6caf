r"""Room of the column beside a softmax: keys and values of earlier layers at the row's own position.

    exp(s_k) / (Σ_k exp(s_k) + Σ_i exp(c_i))        c_i = Q . K_i of earlier layers i at the row's position

so that a head chooses between other positions of its own layer and its own position at earlier layers. A column joins after
all scores are computed, as sinks do; masks and biases, which are of pairs of positions, do not apply to it. Keys and values are
those that layer i attended to. All of it is known at the row's position, so decoding needs no cache of its own.

Example: the layer before this one alone, as a plug-in file

    @dataclass(frozen=True, kw_only=True)
    class Previous(ColumnSpec):
        @classmethod
        def reduces_to(cls) -> tuple[Reduction, ...]:
            return (Reduction(given={"depth": 1}, to={"column": "none"}),)

        def build(self, shape: Shape) -> "PreviousColumn":
            return PreviousColumn()

    class PreviousColumn(Column):
        def sources(self, layer: int) -> tuple[int, ...]:
            return (layer - 1,) if layer else ()
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from addnorm.catalogue import Spec
from addnorm.reduction import Reducible
from addnorm.roles import ParameterRole
from addnorm.shape import Shape

__all__ = ["Column", "ColumnSpec"]


class Column(nn.Module, ABC):
    """The columns of a model. One instance serves all layers; layers count from 0.

    Example:
        >>> class Previous(Column):
        ...     def sources(self, layer):
        ...         return (layer - 1,) if layer else ()
        >>> Previous().sources(2)
        (1,)
    """

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {}
    """Role of each parameter, by name; see `addnorm.roles`. A parameter without a role is not treated as a matrix."""
    read: frozenset[int] = frozenset()
    """Layers in the `sources` of another one; the model sets them."""

    @abstractmethod
    def sources(self, layer: int) -> tuple[int, ...]:
        """The earlier layers whose keys and values stand in the column of `layer`."""


@dataclass(frozen=True, kw_only=True)
class ColumnSpec(Reducible, Spec):
    """Base of every column's specification.

    Example:
        >>> from addnorm.column.earlier import Earlier
        >>> shape = Shape(width=16, depth=4, heads=2, kv_heads=2, hidden=32, max_seq=8)
        >>> Earlier(most=2).build(shape).sources(3)
        (1, 2)
    """

    @abstractmethod
    def build(self, shape: Shape) -> Column | None:
        """Build the module; None for a softmax over the sequence alone."""
