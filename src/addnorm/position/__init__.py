"""Room of the position encodings, from which a model knows the order of its tokens.

A position encoding may act in four places, each a method that does nothing unless a sibling overrides it: on the embeddings
(`embed`), on queries and keys (`rotate`), on the summed scores (`score_bias`), or on the visible keys (`window`).
`rotate_layer` and `layer_bias` are for encodings that differ by layer or read the branch's input. One instance serves the whole
model. Values that all layers of a forward pass share (angles, distances) are computed once by `prepare`.

Example: a bias that is linear in the distance, as a plug-in file

    @dataclass(frozen=True, kw_only=True)
    class Slope(PositionSpec):
        @classmethod
        def reduces_to(cls) -> tuple[Reduction, ...]:
            return ()

        def build(self, shape: Shape) -> "SlopePosition":
            return SlopePosition()

    class SlopePosition(DistancePosition):
        def bias(self, layer: int, measured: Tensor) -> Tensor:
            return -0.1 * measured.abs()[None]
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from addnorm.catalogue import Spec
from addnorm.kernels import precise, without_autocast
from addnorm.kernels.grouped_attention import DistanceBias
from addnorm.reduction import Reducible
from addnorm.roles import ParameterRole
from addnorm.shape import Shape

__all__ = ["DistancePosition", "Position", "PositionSpec"]

Angles = tuple[Float[Tensor, "seq pairs"], Float[Tensor, "seq pairs"]]


class Position(nn.Module, ABC):
    """A position encoding.

    Example:
        >>> class LastFour(Position):
        ...     def window(self, prepared):
        ...         return 4
        >>> LastFour().window(None)
        4
    """

    parameter_roles: ClassVar[Mapping[str, ParameterRole]] = {}
    """Role of each parameter, by name; see `addnorm.roles`. A parameter without a role is not treated as a matrix."""

    def embed(self, x: Float[Tensor, "batch seq width"], start: int) -> Float[Tensor, "batch seq width"]:
        """Add the embeddings of the positions start, start + 1, … to the token embeddings.

        Raises:
            InputError: positions beyond those that the encoding covers.
        """
        return x

    def prepare(self, start: int, seq: int, like: Tensor) -> Any:
        """Compute what `rotate` and `score_bias` need for the positions [start, start + seq), once per pass."""
        return None

    def rotate(
        self,
        query: Float[Tensor, "batch heads seq head_dim"],
        key: Float[Tensor, "batch kv_heads seq head_dim"],
        prepared: Any,
    ) -> tuple[Float[Tensor, "batch heads seq head_dim"], Float[Tensor, "batch kv_heads seq head_dim"]]:
        """Encode the positions in queries and keys."""
        return query, key

    def score_bias(self, layer: int, prepared: Any) -> DistanceBias | Float[Tensor, "1 heads query key"] | None:
        """The bias on the summed scores, for keys at positions [0, start + seq); added once.

        For a function of the distance alone return a `DistanceBias`: a matrix would cost seq x seq entries per head.
        """
        return None

    def rotate_layer(
        self,
        layer: int,
        query: Float[Tensor, "batch heads seq head_dim"],
        key: Float[Tensor, "batch kv_heads seq head_dim"],
        prepared: Any,
    ) -> tuple[Float[Tensor, "batch heads seq head_dim"], Float[Tensor, "batch kv_heads seq head_dim"]]:
        """`rotate` of one layer; the same in all layers unless a sibling overrides this method."""
        return self.rotate(query, key, prepared)

    def layer_bias(
        self, layer: int, x: Float[Tensor, "batch seq width"], prepared: Any
    ) -> DistanceBias | Float[Tensor, "#batch heads query key"] | None:
        """`score_bias` of one layer, whose queries read `x` after the norm; it ignores `x` unless a sibling overrides it."""
        return self.score_bias(layer, prepared)

    def window(self, prepared: Any) -> int | None:
        """Largest number of keys that a row sees, the last one at its own position; None for all. Causal models only."""
        return None


class Measured(NamedTuple):
    """The values that a position encoding by distance prepares for a pass."""

    measured: Any
    first: int
    """The smallest distance."""
    like: Tensor
    """An empty tensor of the device and dtype of the bias."""


class DistancePosition(Position):
    """Base of the encodings that add a function of the distance to the summed scores.

    Example:
        >>> class Slope(DistancePosition):
        ...     def bias(self, layer, measured):
        ...         return -0.5 * measured.abs()[None]
        >>> slope = Slope()
        >>> bias = slope.score_bias(0, slope.prepare(start=0, seq=3, like=torch.zeros(1)))
        >>> bias.first, bias.values.tolist()  # distances -2, -1, 0, 1, 2
        (-2, [[-1.0, -0.5, -0.0, -0.5, -1.0]])
    """

    def prepare(self, start: int, seq: int, like: Tensor) -> Measured:
        distance = torch.arange(1 - seq, start + seq, device=like.device)
        # In bfloat16, whole numbers beyond 256 have gaps, and far distances would share a bias.
        dtype = torch.promote_types(like.dtype, torch.float32)
        return Measured(self.measure(distance), first=1 - seq, like=like.new_empty(0, dtype=dtype))

    def measure(self, distance: Int64[Tensor, " span"]) -> Any:
        """Compute what `bias` needs from the distances (query minus key), once for all layers of a pass."""
        return distance

    @abstractmethod
    def bias(self, layer: int, measured: Any) -> Float[Tensor, "#heads span"]:
        """The bias on the summed scores of a layer at each distance."""

    def score_bias(self, layer: int, prepared: Measured) -> DistanceBias:
        with without_autocast(prepared.like):
            values = self.bias(layer, prepared.measured)
        return DistanceBias(values=values.to(prepared.like.dtype).to(prepared.like.device), first=prepared.first)


@dataclass(frozen=True, kw_only=True)
class PositionSpec(Reducible, Spec):
    """Base of every position encoding's specification.

    Example:
        >>> from addnorm.position.learned import Learned
        >>> shape = Shape(width=16, depth=2, heads=2, kv_heads=2, hidden=32, max_seq=8)
        >>> [parameter.shape for parameter in Learned().build(shape).parameters()]
        [torch.Size([8, 16])]
    """

    @property
    def refuses_qk_norm(self) -> str | None:
        """The reason why queries and keys must not be normed before `rotate` sees them; None if they may be."""
        return None

    @abstractmethod
    def build(self, shape: Shape) -> Position:
        """Build the module. Its method `initialise`, if it has one, fills its parameters later."""


def frequencies(dim: int, theta: float, device: torch.device) -> Float[Tensor, " pairs"]:
    """theta^{-2j/dim} for j < dim/2, in float64: at position 100 000 float32 leaves an error of 0.004 in the fastest pair.

    They are on the device, or on the CPU if it has no float64.
    """
    return theta ** (-torch.arange(0, dim, 2, device=precise(device), dtype=torch.float64) / dim)


def angles(start: int, seq: int, like: Tensor, frequencies: Float64[Tensor, " pairs"], divisor: float = 1.0) -> Angles:
    """Cosines and sines of positions over the divisor, times frequencies: computed in float64, as `frequencies` are, and given
    in the type and on the device of `like`."""
    device = precise(like.device)
    position = torch.arange(start, start + seq, device=device, dtype=torch.float64)
    angle = torch.outer(position if divisor == 1 else position / divisor, frequencies.to(device))
    return angle.cos().to(like.dtype).to(like.device), angle.sin().to(like.dtype).to(like.device)


def turn(
    x: Float[Tensor, "*batch seq entries"], cos: Float[Tensor, "seq pairs"], sin: Float[Tensor, "seq pairs"]
) -> Float[Tensor, "*batch seq entries"]:
    """Rotate each pair (x_{2j}, x_{2j+1}) as a point of the plane (and scale it, if cos and sin are scaled)."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)
    return turned.to(x.dtype)  # under autocast the angles have a wider type than the queries
