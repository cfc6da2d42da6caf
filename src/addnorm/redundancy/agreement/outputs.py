"""Agreement of two models' outputs in float64, on fresh inputs and other lengths.

Three models are called: both given ones, and the first one with the second one's numbers. The last two differ in nothing
that is stored, so that float64's rounding alone bounds their difference: an epsilon, a flag, a hook or a table that no file
holds cannot hide in the rounding of stored biases. The first two may differ by that rounding too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.redundancy.agreement.numbers import with_numbers_of
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe, ObservedNumbers
from addnorm.redundancy.execution.tracked_parameters import TrackedParameters
from addnorm.redundancy.numeric.probe import Probe
from addnorm.redundancy.rewriting.certificate import inputs_to_compare
from addnorm.redundancy.rewriting.output_difference import flat_outputs, floats_changed
from addnorm.redundancy.rewriting.storage_rounding import DRAWS, moved_at_random


@dataclass(frozen=True, kw_only=True)
class OutputAgreement:
    """Comparison of two models' outputs. Numbers are relative to the output's root mean square."""

    difference: float
    bound: float
    """Largest difference that rounding explains: float64's, and that of the stored parameters that a rewrite touched."""
    inputs: int
    """Number of inputs compared."""
    integers_changed: int
    """Number of observed integers that differ although no rounding of the parameters changes them."""
    with_equal_numbers: float = 0.0
    """Difference that is left once the first model has all stored numbers of the second one."""
    rounding: float = 0.0
    """Largest difference that float64's rounding alone explains."""

    @property
    def same_computation(self) -> bool:
        """True if both models compute the same from equal numbers."""
        return self.with_equal_numbers <= self.rounding

    @property
    def agreed(self) -> bool:
        """True if rounding explains every difference."""
        return self.difference <= self.bound and self.same_computation and not self.integers_changed


@dataclass(frozen=True, kw_only=True)
class OutputComparison:
    """Two models whose outputs are compared, and the inputs."""

    first: nn.Module
    second: nn.Module
    inputs: Inputs
    tracked: TrackedParameters
    """The first model's tracked parameters."""
    observe: Observe
    training: bool

    def agreement(self, rounding: Mapping[str, Tensor]) -> OutputAgreement:
        """Compare the outputs.

        Args:
            rounding: largest rounding error of each entry of the first model's parameters; absent ones have none.

        Raises:
            InputError: a model rejects the inputs.
        """
        drawn = inputs_to_compare(Cases.of(copy_of(self.first, torch.float64).eval(), self.inputs, self.observe))
        expected = self._outputs(copy_of(self.first, torch.float64), drawn)
        # Running statistics change in training mode, so each call of a model has a copy of its own.
        other = self._outputs(copy_of(self.second, torch.float64), drawn)
        equal_numbers = self._outputs(with_numbers_of(self.first, self.second), drawn)
        own = self._own_rounding(drawn[:3])
        rounded = [
            self._outputs(_rounded(self.first, rounding, seed), drawn) for seed in range(DRAWS if rounding else 0)
        ]
        pairs = zip(expected, other, equal_numbers, strict=True)
        return OutputAgreement(
            difference=floats_changed(other, expected),
            bound=own + max((floats_changed(each, expected) for each in rounded), default=0.0),
            inputs=len(drawn),
            integers_changed=sum(
                max(
                    _changed(one.integers, two.integers, [each[at].integers for each in rounded]),
                    _changed(equal.integers, two.integers, []),
                )
                for at, (one, two, equal) in enumerate(pairs)
            ),
            with_equal_numbers=floats_changed(other, equal_numbers),
            rounding=own,
        )

    def _own_rounding(self, drawn: Sequence[Inputs]) -> float:
        """The largest difference of two outputs that are rounded in different orders."""
        probe = Probe(copy_of(self.first, torch.float64).train(self.training), self.tracked, self.observe)
        for parameter in probe.model.parameters():
            # The probe sees a computation in a lower precision by the gradients that pass through it.
            parameter.requires_grad_(parameter.is_floating_point())
        return 2 * probe.rounding([(0, each) for each in drawn])

    def _outputs(self, copied: nn.Module, drawn: Sequence[Inputs]) -> list[ObservedNumbers]:
        return flat_outputs(copied.train(self.training), drawn, self.observe, Float64Mode())


def _rounded(model: nn.Module, rounding: Mapping[str, Tensor], seed: int) -> nn.Module:
    """A copy in float64 whose parameters are moved by four times their rounding errors, at random signs."""
    copied, generator = copy_of(model, torch.float64), torch.Generator().manual_seed(seed)
    tensors = dict(copied.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, error in rounding.items():
            tensors[name].copy_(moved_at_random(tensors[name], error, generator))
    return copied


def _changed(ours: Tensor, theirs: Tensor, rounded: Sequence[Tensor]) -> int:
    """Number of integers that differ and that no rounding changes."""
    if ours.shape != theirs.shape:
        return max(ours.numel(), theirs.numel())
    steady = torch.ones_like(ours, dtype=torch.bool)
    for each in rounded:
        # An integer that rounding of the touched biases flips tells nothing about the models.
        steady &= each == ours if each.shape == ours.shape else torch.zeros_like(steady)
    return int(((ours != theirs) & steady).sum())
