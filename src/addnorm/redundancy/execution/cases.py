"""Cases: pairs of a point of the tracked parameters and inputs, with fresh values at every length that the model
takes."""

from dataclasses import dataclass

import torch
from torch import nn

from addnorm.redundancy.execution.checks import check_call
from addnorm.redundancy.execution.fresh_inputs import InputTemplate, accepts, cast, lengths
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe


@dataclass(frozen=True, kw_only=True)
class Cases:
    """An unlimited sequence of numbered pairs of a point of the tracked parameters and inputs."""

    templates: tuple[InputTemplate, ...]
    """The example's own template first, then those at other lengths."""
    lengths: tuple[int, ...]
    """The other lengths."""
    fresh: bool
    """True if the model takes random inputs from the example's template."""

    @classmethod
    def of(cls, copied: nn.Module, inputs: Inputs, observe: Observe) -> "Cases":
        """Determine which inputs a float64 copy takes.

        Raises:
            InputError: it rejects the given ones.
        """
        example = cast(inputs, torch.float64)
        check_call(copied, example, observe)
        template = InputTemplate.of(copied, example)
        if not accepts(copied, template.fresh(1), observe):
            return cls(templates=(template,), lengths=(), fresh=False)
        others = lengths(copied, template, observe)
        return cls(templates=(template, *others.values()), lengths=tuple(others), fresh=True)

    @property
    def sweep(self) -> int:
        """Number of cases that together read every row of every table that integer inputs index; 0 if there is none."""
        steps = [template.step for template in self.templates]
        if not self.fresh or not all(steps):
            return 0
        return 1 + -(-self.templates[0].most_rows // min(steps))

    def __call__(self, number: int) -> tuple[int, Inputs]:
        """Return a case. Case 0 is the example at the model's own values."""
        template = self.templates[number % len(self.templates)]
        # Each case goes on where the one before ended, so that a sweep reads every row of every table.
        # Whole rounds of the templates, and the rest of one: a sum over all cases before would make a sweep quadratic.
        steps = [self.templates[each % len(self.templates)].step for each in range(1, len(self.templates) + 1)]
        rounds, rest = divmod(max(number - 1, 0), len(steps))
        start = rounds * sum(steps) + sum(steps[:rest])
        return number, template.fresh(number, start) if self.fresh and number else template.example
