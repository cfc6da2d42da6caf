r"""YaRN: slow pairs are interpolated, fast pairs unchanged, pairs between them mixed, and scores multiplied by a factor.

    theta_j' = ((1 - gamma_j)/s + gamma_j) theta_j,        gamma_j = clamp((T theta_j / 2 pi - alpha)/(beta - alpha), 0, 1)
    score <- (0.1 ln s + 1)^2 score,        s = L / T

L is the length, T the train length; T theta_j / 2 pi is the number of turns of pair j within the train length.

Why: a pair that turns many times has taken all angles in training; one that never completes a turn has not.

Source: Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", arXiv:2309.00071,
second version, Definitions 2 and 3; alpha = 1 and beta = 32 as recommended there for LLaMA.
Differs from the source: no fine-tuning afterwards; the factor is applied to whole queries, as the definition says for partial
rotation (some implementations scale only the rotated elements of q and k).
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from addnorm.errors import InputError
from addnorm.insight.extrapolation.switches import Reach, SwitchSpec, require_softmax
from addnorm.insight.extrapolation.switches._rotation import RescaledRope, as_rope, frequencies_of, require_rope
from addnorm.model.architecture import Architecture
from addnorm.position import Position


@dataclass(frozen=True, kw_only=True)
class Yarn(SwitchSpec):
    """Bounds between interpolated, mixed and unchanged pairs."""

    alpha: float = 1.0
    """Turns within the train length up to which a pair is fully interpolated."""
    beta: float = 32.0
    """Turns from which a pair is unchanged."""

    changes: ClassVar[str] = "rotation"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha < self.beta:
            raise InputError(f"yarn: expected 0 <= alpha < beta, got alpha {self.alpha} and beta {self.beta}.")

    def require(self, model: Architecture) -> None:
        require_rope(self.kind, model)
        require_softmax(self.kind, model)

    def wrap(self, position: Position, reach: Reach) -> Position:
        rope = as_rope(position)
        own = frequencies_of(rope, rope.theta)
        turns = reach.trained * own / (2 * math.pi)
        gamma = ((turns - self.alpha) / (self.beta - self.alpha)).clamp(0.0, 1.0)
        # At the train length s is 1, and every frequency is its own whatever gamma is: the switch is the identity
        # there.
        mixed = ((1 - gamma) / reach.scale + gamma) * own
        return RescaledRope(rope, frequencies=mixed, query_scale=(0.1 * math.log(reach.scale) + 1) ** 2)
