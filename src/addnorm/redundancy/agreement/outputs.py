"""Agreement of two models' outputs in float64, on fresh inputs and other lengths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe, ObservedNumbers
from addnorm.redundancy.execution.tracked_parameters import TrackedParameters
from addnorm.redundancy.numeric.probe import Probe
from addnorm.redundancy.rewriting.certificate import inputs_to_compare
from addnorm.redundancy.rewriting.output_difference import flat_output, floats_changed
from addnorm.redundancy.rewriting.storage_rounding import DRAWS, moved_at_random


@dataclass(frozen=True, kw_only=True)
class OutputAgreement:
    """Comparison of two models' outputs. Numbers are relative to the output's root mean square."""

    difference: float
    bound: float
    """Largest difference that rounding explains: float64's, and that of the stored parameters."""
    inputs: int
    """Number of inputs compared."""
    integers_changed: int
    """Number of observed integers that differ although no rounding of the parameters changes them."""

    @property
    def agreed(self) -> bool:
        """True if rounding explains every difference."""
        return self.difference <= self.bound and not self.integers_changed


def compare_outputs(
    first: nn.Module,
    second: nn.Module,
    inputs: Inputs,
    tracked: TrackedParameters,
    observe: Observe,
    rounding: Mapping[str, Tensor],
    *,
    training: bool,
) -> OutputAgreement:
    """Compare two models' outputs.

    Args:
        first: one model.
        second: the other model.
        inputs: inputs of both.
        tracked: the first model's tracked parameters.
        observe: the observed output.
        rounding: largest rounding error of each entry of the first model's parameters; absent ones have none.
        training: compare in training mode.
    """
    drawn = inputs_to_compare(Cases.of(copy_of(first, torch.float64).eval(), inputs, observe))
    expected = _outputs(copy_of(first, torch.float64).train(training), drawn, observe)
    found = _outputs(copy_of(second, torch.float64).train(training), drawn, observe)
    probe = Probe(copy_of(first, torch.float64).train(training), tracked, observe)
    own = 2 * probe.rounding([(0, each) for each in drawn[:3]])  # both outputs are rounded, in different orders
    rounded = [
        _outputs(_rounded(first, rounding, seed).train(training), drawn, observe)
        for seed in range(DRAWS if rounding else 0)
    ]
    return OutputAgreement(
        difference=floats_changed(found, expected),
        bound=own + max((floats_changed(each, expected) for each in rounded), default=0.0),
        inputs=len(drawn),
        integers_changed=sum(
            _changed(ours, theirs, [each[at].integers for each in rounded])
            for at, (ours, theirs) in enumerate(
                (one.integers, other.integers) for one, other in zip(expected, found, strict=True)
            )
        ),
    )


def _rounded(model: nn.Module, rounding: Mapping[str, Tensor], seed: int) -> nn.Module:
    """A copy in float64 whose parameters are moved by four times their rounding errors, at random signs."""
    copied, generator = copy_of(model, torch.float64), torch.Generator().manual_seed(seed)
    tensors = dict(copied.named_parameters(remove_duplicate=False)) | dict(copied.named_buffers(remove_duplicate=False))
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
        steady &= each == ours if each.shape == ours.shape else torch.zeros_like(steady)
    return int(((ours != theirs) & steady).sum())


@torch.no_grad()
def _outputs(model: nn.Module, drawn: Sequence[Inputs], observe: Observe) -> list[ObservedNumbers]:
    with Float64Mode():
        return [flat_output(model, inputs, observe) for inputs in drawn]
