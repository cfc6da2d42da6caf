r"""Room of the sinks: the score of one further key per head, which every row sees and which has no value.

    exp(s_k) / (exp(sink) + Σ_k exp(s_k))

so that a head may attend to nothing. A sink joins after all scores are summed, as masks do.

Example: a sink that grows with depth, as a plug-in file

    @dataclass(frozen=True, kw_only=True)
    class ByDepth(SinkSpec):
        @classmethod
        def reduces_to(cls) -> tuple[Reduction, ...]:
            return (Reduction(given={"depth": 1}, to={"sink": "constant"}),)

        def build(self, shape: Shape) -> "SinksByDepth":
            return SinksByDepth(shape.heads)

    class SinksByDepth(Sinks):
        def __init__(self, heads: int) -> None:
            super().__init__()
            self.register_buffer("ones", torch.ones(heads))

        def logits(self, layer: int) -> Tensor:
            return layer * self.ones
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from addnorm.catalogue import Spec
from addnorm.reduction import Reducible
from addnorm.roles import ParameterRole
from addnorm.shape import Shape

__all__ = ["SinkSpec", "Sinks"]

Coefficients = dict[str, tuple[list[int], Float[Tensor, " entries"]]]


class Sinks(nn.Module, ABC):
    """The sinks of a model. One instance serves all layers; layers count from 0.

    Example:
        >>> import torch
        >>> class ByDepth(Sinks):
        ...     def logits(self, layer):
        ...         return torch.full((4,), float(layer))
        >>> ByDepth().logits(2).tolist()
        [2.0, 2.0, 2.0, 2.0]
    """

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {}
    """Role of each parameter, by name; see `addnorm.roles`. A parameter without a role is not treated as a matrix."""

    @abstractmethod
    def logits(self, layer: int) -> Float[Tensor, " heads"]:
        """The sink of every query head of a layer."""

    def of_queries(self, layer: int, x: Float[Tensor, "batch seq width"]) -> Float[Tensor, "batch heads seq"] | None:
        """The term that every query adds to the sink of its head; None if all queries of a head share one sink.

        Args:
            layer: the layer.
            x: what the queries of its branch read, after the norm.
        """
        return None

    def coefficients(self) -> Coefficients:
        """The sinks that are learned: for every parameter, the layers of its entries and the sinks there."""
        return {}


@dataclass(frozen=True, kw_only=True)
class SinkSpec(Reducible, Spec):
    """Base of every sink's specification.

    Example:
        >>> from addnorm.sink.constant import Constant
        >>> shape = Shape(width=16, depth=2, heads=2, kv_heads=2, hidden=32, max_seq=8)
        >>> Constant(value=-1.0).build(shape).logits(0).tolist()
        [-1.0, -1.0]
    """

    @abstractmethod
    def build(self, shape: Shape) -> Sinks | None:
        """Build the module; None for a softmax without a sink."""
