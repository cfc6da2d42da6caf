r"""Position interpolation: positions are divided so that the whole length spans the angles of the train length.

    angle_{t,j} = (t / s) theta^{-2j/r},        s = L / T

L is the length, T the train length, r the number of rotated elements.

Why: no angle leaves the range that the model was trained on. Near positions, however, are closer than in training.

Source: Chen et al. 2023, "Extending Context Window of Large Language Models via Positional Interpolation",
arXiv:2306.15595, section 2.3, eq. 4.
Differs from the source: no fine-tuning afterwards.
"""

from dataclasses import dataclass
from typing import ClassVar

from addnorm.insight.extrapolation.switches import Reach, SwitchSpec
from addnorm.insight.extrapolation.switches._rotation import RescaledRope, as_rope, frequencies_of, require_rope
from addnorm.model.architecture import Architecture
from addnorm.position import Position


@dataclass(frozen=True, kw_only=True)
class PositionInterpolation(SwitchSpec):
    """No settings."""

    changes: ClassVar[str] = "rotation"

    def require(self, model: Architecture) -> None:
        require_rope(self.kind, model)

    def wrap(self, position: Position, reach: Reach) -> Position:
        rope = as_rope(position)
        return RescaledRope(rope, frequencies=frequencies_of(rope, rope.theta), divisor=reach.scale)
