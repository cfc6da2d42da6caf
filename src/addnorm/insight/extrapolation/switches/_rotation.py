"""A rotary position with given frequencies, which the switches of the rotation put in place of the model's."""

import torch
from jaxtyping import Float64
from torch import Tensor

from addnorm.errors import InputError
from addnorm.model.architecture import Architecture
from addnorm.position import Angles, Position, angles, frequencies
from addnorm.position.rope import Rope, RopePosition


class RescaledRope(RopePosition):
    """Rotation at given frequencies.

    Args:
        position: the model's own rotation.
        frequencies: radians per position, one per pair, in place of theta^{-2j/r}.
        divisor: positions are divided by it.
        query_scale: queries are multiplied by it after the rotation.
    """

    def __init__(
        self,
        position: RopePosition,
        *,
        frequencies: Float64[Tensor, " pairs"],
        divisor: float = 1.0,
        query_scale: float = 1.0,
    ) -> None:
        super().__init__(position.rotated, position.theta)
        self.frequencies, self.divisor, self.query_scale = frequencies, divisor, query_scale

    def prepare(self, start: int, seq: int, like: Tensor) -> Angles:
        return angles(start, seq, like, self.frequencies, self.divisor)

    def rotate(self, query: Tensor, key: Tensor, prepared: Angles) -> tuple[Tensor, Tensor]:
        query, key = super().rotate(query, key, prepared)
        return query * self.query_scale, key


def frequencies_of(rope: RopePosition, theta: float) -> Float64[Tensor, " pairs"]:
    """Radians per position of every pair, theta^{-2j/r}, in float64."""
    return frequencies(rope.rotated, theta, torch.device("cpu"))


def require_rope(kind: str, model: Architecture) -> None:
    """Require rotary positions with frequencies.

    Raises:
        InputError: the model has another position.
    """
    if not isinstance(model.position, Rope):
        raise InputError(
            f"switch '{kind}' changes the frequencies of rotary positions: expected position 'rope', got "
            f"'{model.position.kind}'. Leave the switch out, or choose variants with --variant."
        )


def as_rope(position: Position) -> RopePosition:
    """Narrow the type of a position to a rotation.

    Raises:
        InputError: the position is not rotary.
    """
    if not isinstance(position, RopePosition):
        raise InputError(f"expected a rotary position, got {type(position).__name__}.")
    return position
