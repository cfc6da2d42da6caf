r"""Learned absolute positions: a table with one vector per position.

    x_0 = embedding(token_t) + table[t]

Why: used by GPT-1, GPT-2 and BERT. Positions beyond the table are not defined.

Source: Gehring et al. 2017, arXiv:1705.03122; Devlin et al. 2018, arXiv:1810.04805.
Differs from the source: nothing.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.fields import require_positive
from addnorm.position import Position, PositionSpec
from addnorm.reduction import Reduction
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Learned(PositionSpec):
    """A table of `max_seq` vectors."""

    init_std: float = 0.02
    """Standard deviation of the entries at the start."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "init_std")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (Reduction(parameters={"table": 0.0}, to={"position": "none"}),)

    def build(self, shape: Shape) -> "LearnedPosition":
        return LearnedPosition(shape, self.init_std)


class LearnedPosition(Position):
    parameter_roles = {"table": "embedding"}

    def __init__(self, shape: Shape, init_std: float) -> None:
        super().__init__()
        self.init_std = init_std
        self.table = nn.Parameter(torch.empty(shape.max_seq, shape.width))

    def initialise(self, name: str, generator: torch.Generator) -> None:
        nn.init.normal_(self.table, std=self.init_std, generator=generator)

    def embed(self, x: Float[Tensor, "batch seq width"], start: int) -> Float[Tensor, "batch seq width"]:
        end = start + x.shape[1]
        if end > len(self.table):
            raise InputError(
                f"a learned position table: expected at most max_seq = {len(self.table)} positions, got {end}. "
                "Shorten the sequence, build with a larger max_seq, or use a position without a table (rope, sinusoidal)."
            )
        return x + self.table[start:end]
