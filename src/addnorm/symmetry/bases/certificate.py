"""Comparison of a model before and after a change of basis, at inputs and lengths that the analysis did not use."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.fresh_inputs import cast
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.rewriting.certificate import inputs_to_compare
from addnorm.redundancy.rewriting.output_difference import flat_outputs, floats_changed, integers_changed
from addnorm.symmetry.bases.change import Weights, put

EXACT = 1e-9
"""Largest relative difference of outputs in float64."""
_ROUNDING_FACTOR = 8
"""Two models that round independently differ by up to the sum of their errors, and a representative with other sizes of weights
rounds elsewhere: the largest error varies by a factor of a few."""


@dataclass(frozen=True, kw_only=True)
class BasisCertificate:
    """Comparison of outputs before and after. Differences are relative to the outputs' root mean square."""

    exact: float
    """Largest difference in float64, with weights before they are rounded for storage."""
    stored: float
    """Largest difference in the model's own precision, with weights as they are stored."""
    rounding: float
    """Largest rounding error of the original in its own precision."""
    integers_changed: int
    """Observed integers that differ in float64."""
    inputs: int
    lengths: tuple[int, ...]
    """Other lengths than the example's."""

    @property
    def allowed(self) -> float:
        """Largest difference in the model's own precision that rounding explains."""
        return max(EXACT, _ROUNDING_FACTOR * self.rounding)

    @property
    def passed(self) -> bool:
        """True if nothing but rounding differs."""
        return self.exact < EXACT and not self.integers_changed and self.stored <= self.allowed

    def to_json(self) -> dict[str, Any]:
        """Return its entry in JSON."""
        return {"passed": self.passed, **asdict(self)}


def rewritten(
    model: nn.Module, weights: Weights, inputs: Inputs, observe: Observe
) -> tuple[nn.Module, BasisCertificate]:
    """Return a copy of the model with other weights in its own precision, and the certificate."""
    wide = copy_of(model, torch.float64).eval()
    cases = Cases.of(wide, inputs, observe)
    drawn = inputs_to_compare(cases)
    before = flat_outputs(wide, drawn, observe, Float64Mode())
    put(wide, weights)
    after = flat_outputs(wide, drawn, observe, Float64Mode())
    del wide
    made = copy_of(model, None).train(model.training)
    put(made, weights)
    dtype = next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)
    own = [cast(each, dtype) for each in drawn]
    original = flat_outputs(copy_of(model, None).eval(), own, observe, None)
    training = made.training
    stored = flat_outputs(made.eval(), own, observe, None)
    return made.train(training), BasisCertificate(
        exact=floats_changed(after, before),
        stored=floats_changed(stored, original),
        rounding=floats_changed(original, before),
        integers_changed=integers_changed(after, before),
        inputs=len(drawn),
        lengths=cases.lengths,
    )
