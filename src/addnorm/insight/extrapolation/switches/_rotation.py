"""A rotary position with angles of its own: what the switches of the rotation put in the place of the model's."""

import torch
from jaxtyping import Float64
from torch import Tensor

from addnorm.errors import InputError
from addnorm.model.architecture import Architecture
from addnorm.position import Position
from addnorm.position._rotation import frequencies
from addnorm.position.rope import Angles, Rope, RopePosition


class Rescaled(RopePosition):
    """Rotation at given frequencies.

    Args:
        position: the model's own rotation.
        frequencies: radians per position, one per pair, in place of theta^{-2j/r}.
        stretch: positions are divided by it.
        temper: queries are multiplied by it after the rotation.
    """

    def __init__(
        self,
        position: RopePosition,
        *,
        frequencies: Float64[Tensor, " pairs"],
        stretch: float = 1.0,
        temper: float = 1.0,
    ) -> None:
        super().__init__(position.rotated, position.theta)
        self.frequencies, self.stretch, self.temper = frequencies, stretch, temper

    def prepare(self, start: int, seq: int, like: Tensor) -> Angles:
        position = torch.arange(start, start + seq, device=like.device, dtype=torch.float64) / self.stretch
        angle = torch.outer(position, self.frequencies.to(like.device))
        return angle.cos().to(like.dtype), angle.sin().to(like.dtype)

    def rotate(self, query: Tensor, key: Tensor, prepared: Angles) -> tuple[Tensor, Tensor]:
        query, key = super().rotate(query, key, prepared)
        return query * self.temper, key


def frequencies_of(rope: RopePosition, theta: float) -> Float64[Tensor, " pairs"]:
    """Radians per position of every pair, theta^{-2j/r}, in float64."""
    return frequencies(rope.rotated, theta, torch.device("cpu"))


def require_rope(kind: str, model: Architecture) -> None:
    """Raises:
    InputError: the model's position is no rotation with frequencies.
    """
    if not isinstance(model.position, Rope):
        raise InputError(
            f"switch '{kind}' changes the frequencies of rotary positions: it applies to position 'rope', this model has "
            f"'{model.position.kind}'. Leave the switch out, or choose the variants with --variant."
        )


def as_rope(position: Position) -> RopePosition:
    """The model's rotation, for the type checker and for whoever calls `wrap` without `require`.

    Raises:
        InputError: it is none.
    """
    if not isinstance(position, RopePosition):
        raise InputError(f"a switch of the rotation needs a rotary position, got {type(position).__name__}.")
    return position
