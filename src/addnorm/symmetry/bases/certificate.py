"""Comparison of a model before and after a change of basis, at inputs and lengths that the analysis did not use."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.fresh_inputs import cast
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.result import class_name
from addnorm.redundancy.rewriting.certificate import inputs_to_compare
from addnorm.redundancy.rewriting.output_difference import flat_outputs, floats_changed, integers_changed
from addnorm.symmetry.bases.change import Weights, put

EXACT = 1e-9
"""Largest relative difference of outputs in float64."""
BYTES = 2 * 4 + 8
"""Memory of a certificate per number of a float32 model: the model, a copy of its own precision, and one in float64."""
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
    model: nn.Module, change: Callable[[Weights], None], inputs: Inputs, observe: Observe
) -> tuple[nn.Module, BasisCertificate]:
    """Return a copy of the model with changed weights in its own precision, and the certificate.

    Beside the model there are at most a copy in float64 and one in its own precision (`BYTES`).

    Args:
        model: any module; not changed.
        change: changes weights in float64, in place.
        inputs: example inputs.
        observe: the output that must not change.

    Raises:
        InputError: a weight is not finite.
    """
    wide = copy_of(model, torch.float64).eval()
    weights = {name: each.detach() for name, each in wide.named_parameters() if each.is_floating_point()}
    require_finite(weights, model)
    cases = Cases.of(wide, inputs, observe)
    drawn = inputs_to_compare(cases)
    before = flat_outputs(wide, drawn, observe, Float64Mode())
    change(weights)
    after = flat_outputs(wide, drawn, observe, Float64Mode())
    made = copy_of(model, None).eval()
    dtype = next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)
    own = [cast(each, dtype) for each in drawn]
    original = flat_outputs(made, own, observe, None)
    put(made, weights)
    del wide, weights
    stored = flat_outputs(made, own, observe, None)
    return made.train(model.training), BasisCertificate(
        exact=floats_changed(after, before),
        stored=floats_changed(stored, original),
        rounding=floats_changed(original, before),
        integers_changed=integers_changed(after, before),
        inputs=len(drawn),
        lengths=cases.lengths,
    )


def require_finite(weights: Weights, model: nn.Module) -> None:
    """Require numbers.

    Raises:
        InputError: there is a NaN or an infinity.
    """
    if any(not bool(torch.isfinite(each).all()) for each in weights.values()):
        raise InputError(f"expected finite weights, got NaN or infinity in {class_name(model)}.")
