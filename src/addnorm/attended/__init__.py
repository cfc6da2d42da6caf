"""Room of what becomes of attended values, head by head, before the output matrix joins the heads.

Example: every head's output is halved, as a plug-in file

    @dataclass(frozen=True, kw_only=True)
    class Halved(AttendedSpec):
        @classmethod
        def reduces_to(cls) -> tuple[Reduction, ...]:
            return ()

        def build(self, shape: Shape, layer: int, *, std: float) -> "HalvedAttended":
            return HalvedAttended()

    class HalvedAttended(Attended):
        def forward(self, y: Tensor, x: Tensor, value: Tensor) -> Tensor:
            return 0.5 * y
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

__all__ = ["Attended", "AttendedSpec"]


class Attended(nn.Module, ABC):
    """Change of one layer's attended values, before its output matrix.

    Example:
        >>> import torch
        >>> class Halved(Attended):
        ...     def forward(self, y, x, value):
        ...         return 0.5 * y
        >>> y = torch.ones(1, 2, 5, 8)
        >>> Halved()(y, torch.zeros(1, 5, 16), y).mean().item()
        0.5
    """

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {}
    """Role of each parameter, by name; see `addnorm.roles`. A parameter without a role is not treated as a matrix."""

    @abstractmethod
    def forward(
        self,
        y: Float[Tensor, "*batch heads seq value_dim"],
        x: Float[Tensor, "*batch seq width"],
        value: Float[Tensor, "*batch kv_heads seq value_dim"],
    ) -> Float[Tensor, "*batch heads seq value_dim"]:
        """Each position's outcome, from that position alone.

        Args:
            y: the attended values of every head.
            x: what the branch reads, after its norm.
            value: the values at the positions themselves; query head h reads value head h // (heads // kv_heads).
        """


@dataclass(frozen=True, kw_only=True)
class AttendedSpec(Reducible, Spec):
    """Base of every specification of the room.

    Example:
        >>> from addnorm.attended.head_scale import HeadScale
        >>> shape = Shape(width=16, depth=2, heads=2, kv_heads=2, hidden=32, max_seq=8)
        >>> HeadScale().build(shape, layer=0, std=0.02).gamma.tolist()
        [1.0, 1.0]
    """

    @abstractmethod
    def build(self, shape: Shape, layer: int, *, std: float) -> Attended | None:
        """Build the module of one layer; None to leave attended values as they are.

        Args:
            shape: sizes; `shape.value_dim` is the width of one value head.
            layer: 0-based; of gated attention units each counts.
            std: standard deviation of the entries of the model's matrices at the start.
        """
