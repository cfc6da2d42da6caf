r"""NTK-aware base: a larger base of the rotation interpolates the slowest pair and leaves the fastest unchanged.

    theta' = theta s^{r/(r-2)},        angle_{t,j} = t theta'^{-2j/r},        s = L / T

L is the length, T the train length, r the number of rotated elements. Pair 0 keeps its frequency; that of the last pair is
divided by s.

Why: position interpolation makes near positions hard to distinguish; only the fast pairs distinguish them.

Source: bloc97 2023, "NTK-Aware Scaled RoPE", as Definition 1 of Peng et al. 2023, "YaRN", arXiv:2309.00071
(second version).
Differs from the source: nothing.
"""

from dataclasses import dataclass
from typing import ClassVar

from addnorm.errors import InputError
from addnorm.insight.extrapolation.switches import Reach, SwitchSpec
from addnorm.insight.extrapolation.switches._rotation import RescaledRope, as_rope, frequencies_of, require_rope
from addnorm.model.architecture import Architecture
from addnorm.position import Position
from addnorm.position.rope import Rope


@dataclass(frozen=True, kw_only=True)
class NTK(SwitchSpec):
    """No settings."""

    changes: ClassVar[str] = "rotation"

    def require(self, model: Architecture) -> None:
        require_rope(self.kind, model)
        if isinstance(model.position, Rope) and model.attention_shape.head_dim * model.position.fraction <= 2:
            raise InputError(
                f"switch '{self.kind}': expected at least two rotated pairs, for which r/(r-2) is defined, got head width "
                f"{model.attention_shape.head_dim}, fraction {model.position.fraction}. Use yarn or position_interpolation."
            )

    def wrap(self, position: Position, reach: Reach) -> Position:
        rope = as_rope(position)
        theta = rope.theta * reach.scale ** (rope.rotated / (rope.rotated - 2))
        return RescaledRope(rope, frequencies=frequencies_of(rope, theta))
