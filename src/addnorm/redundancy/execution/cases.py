"""The inputs and points that a model is looked at: fresh values at every length that it takes."""

from dataclasses import dataclass

import torch
from torch import nn

from addnorm.redundancy.execution.checks import check_call
from addnorm.redundancy.execution.fresh_inputs import Kind, cast, lengths, runs
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe


@dataclass(frozen=True, kw_only=True)
class Cases:
    """Numbered pairs of a point of the tracked parameters and inputs, as many as asked for."""

    kinds: tuple[Kind, ...]
    """The example's kind first, then those at other lengths."""
    lengths: tuple[int, ...]
    """The other lengths."""
    fresh: bool
    """Whether the model takes random inputs of the example's kind."""

    @classmethod
    def of(cls, copied: nn.Module, given: Inputs, observe: Observe) -> "Cases":
        """Try which inputs a float64 copy takes.

        Raises:
            InputError: not even those given.
        """
        example = cast(given, torch.float64)
        check_call(copied, example, observe)
        kind = Kind.of(copied, example)
        if not runs(copied, kind.fresh(1), observe):
            return cls(kinds=(kind,), lengths=(), fresh=False)
        others = lengths(copied, kind, observe)
        return cls(kinds=(kind, *others.values()), lengths=tuple(others), fresh=True)

    @property
    def sweep(self) -> int:
        """Cases after which every row of every table that integers select from was read; 0 where there is none."""
        steps = [kind.step for kind in self.kinds]
        if not self.fresh or not all(steps):
            return 0
        return 1 + -(-self.kinds[0].most_rows // min(steps))

    def __call__(self, number: int) -> tuple[int, Inputs]:
        """Case 0 is the example at the model's own values."""
        kind = self.kinds[number % len(self.kinds)]
        start = sum(self.kinds[each % len(self.kinds)].step for each in range(1, number))
        return number, kind.fresh(number, start) if self.fresh and number else kind.example
