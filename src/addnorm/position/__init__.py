"""Room of the positions: how a model knows the order of its tokens.

A position may act in four places, each a method that does nothing unless a sibling says otherwise: on the embeddings
(`embed`), on queries and keys (`rotate`), on the summed scores (`score_bias`), or on what is seen (`window`). One instance
serves the whole model. What is the same for all layers of one forward pass (angles, distances) is made once by `prepare`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from addnorm.catalogue import Spec
from addnorm.kernels.grouped_attention import DistanceBias
from addnorm.kernels.grouped_attention.precision import without_autocast
from addnorm.roles import ParameterRole
from addnorm.shape import Shape

__all__ = ["DistancePosition", "Position", "PositionSpec"]


class Position(nn.Module, ABC):
    """A position encoding."""

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {}
    """What its parameters are, by name; see `addnorm.roles`. Without a role none of them is taken for a matrix."""

    def embed(self, x: Float[Tensor, "batch seq width"], start: int) -> Float[Tensor, "batch seq width"]:
        """Embeddings of the positions start, start + 1, … joined with the token embeddings.

        Raises:
            InputError: the positions lie beyond what this encoding knows.
        """
        return x

    def prepare(self, start: int, seq: int, like: Tensor) -> Any:
        """Whatever `rotate` and `score_bias` need for the positions [start, start + seq), computed once per pass."""
        return None

    def rotate(
        self,
        query: Float[Tensor, "batch heads seq head_dim"],
        key: Float[Tensor, "batch kv_heads seq head_dim"],
        prepared: Any,
    ) -> tuple[Float[Tensor, "batch heads seq head_dim"], Float[Tensor, "batch kv_heads seq head_dim"]]:
        """Queries and keys with their positions written into them."""
        return query, key

    def score_bias(self, layer: int, prepared: Any) -> DistanceBias | Float[Tensor, "1 heads query key"] | None:
        """What joins the summed scores, once, for keys at positions [0, start + seq).

        A function of the distance alone is a `DistanceBias`: as a matrix it would cost seq x seq entries per head.
        """
        return None

    def window(self, prepared: Any) -> int | None:
        """How many keys a row sees at most, its own position's the last; None for all. Of causal models alone."""
        return None


class Measured(NamedTuple):
    """What a position by distance prepares for a pass."""

    measured: Any
    first: int
    """The least distance."""
    like: Tensor
    """An empty tensor of the device and dtype of the bias."""


class DistancePosition(Position):
    """A base for positions that add a function of the distance to the summed scores, once."""

    def prepare(self, start: int, seq: int, like: Tensor) -> Measured:
        distance = torch.arange(1 - seq, start + seq, device=like.device)
        # In bfloat16, whole numbers beyond 256 have gaps, and far distances would share a bias.
        dtype = torch.promote_types(like.dtype, torch.float32)
        return Measured(self.measure(distance), first=1 - seq, like=like.new_empty(0, dtype=dtype))

    def measure(self, distance: Int64[Tensor, " span"]) -> Any:
        """What `bias` needs to know of the distances (query minus key), the same for all layers of a pass."""
        return distance

    @abstractmethod
    def bias(self, layer: int, measured: Any) -> Float[Tensor, "#heads span"]:
        """What joins the summed scores of a layer at each distance."""

    def score_bias(self, layer: int, prepared: Measured) -> DistanceBias:
        with without_autocast(prepared.like):
            values = self.bias(layer, prepared.measured)
        return DistanceBias(values=values.to(prepared.like.dtype), first=prepared.first)


@dataclass(frozen=True, kw_only=True)
class PositionSpec(Spec):
    """Base of every position's configuration."""

    @abstractmethod
    def build(self, shape: Shape) -> Position:
        """The module. Parameters are filled by its `initialise`, if it has one."""
