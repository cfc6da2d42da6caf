"""Certificate of a rewrite: the difference of both models' outputs, compared with the original model's own rounding
error."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.copies import call, copy_of
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.fresh_inputs import cast
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe, observed
from addnorm.redundancy.numeric.probe import Probe
from addnorm.redundancy.rewriting.audited_model import AuditedModel
from addnorm.redundancy.rewriting.rewritten_model import Rewrite

_LOWER_PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_ROUNDING_FACTOR = 4
"""Two models that round independently differ by up to the sum of their errors, and the largest of a few hundred errors
varies by a factor of about two."""
_MODES = {True: "training", False: "eval"}
_FRESH_SEEDS = (101, 102)
"""Seeds of inputs that the audit has not used."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Comparison of the two models in one mode and one number format. All numbers are relative to the output's root
    mean square."""

    mode: str
    dtype: str
    difference: float
    """Largest difference of an observed number over all inputs and lengths."""
    rounding: float
    """Largest rounding error of the original model against itself in float64; in float64, the bound of that error."""
    bound: float
    """Largest difference that rounding explains."""
    skipped: str = ""
    """Error of the original model in this format, because of which nothing was compared."""

    @property
    def passed(self) -> bool:
        """True if the difference is within its bound."""
        return bool(self.skipped) or self.difference <= self.bound < math.inf

    def to_json(self) -> dict[str, Any]:
        """Return its row of the certificate in JSON."""
        return {
            "mode": self.mode,
            "dtype": self.dtype,
            "difference": self.difference,
            "rounding": self.rounding,
            "bound": self.bound,
            "skipped": self.skipped,
            "passed": self.passed,
        }


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The changes of a rewrite, and the comparisons that show that the output is the same."""

    removed: tuple[str, ...]
    """Parameters set to None."""
    zeroed: tuple[str, ...]
    """Parameters set to zeros that are not trained, because their class needs numbers."""
    changed: tuple[str, ...]
    """Parameters and running statistics that absorb removed parameters."""
    reduced: tuple[str, ...]
    """Parameters that keep only their effective directions: part of a fused bias, the mean before a layer norm."""
    refused: tuple[str, ...]
    """Parameters that are kept only because of `max_amplification`."""
    scalars: int
    """Number of scalars removed or zeroed."""
    compared: tuple[Compared, ...]
    lengths: tuple[int, ...]
    """Other input lengths compared, besides the example's."""
    fresh: int
    """Number of inputs compared, over all lengths."""
    left: tuple[str, ...] = ()
    """Parameters that can be removed in a smaller model of the class but not by transfer from it, with the reason."""

    @property
    def passed(self) -> bool:
        """True if every comparison is within its bound."""
        return all(each.passed for each in self.compared)

    def to_json(self) -> dict[str, Any]:
        """Return its entry in `addnorm audit --strip --json`."""
        return {
            "passed": self.passed,
            "removed": list(self.removed),
            "zeroed": list(self.zeroed),
            "changed": list(self.changed),
            "reduced": list(self.reduced),
            "refused": list(self.refused),
            "scalars": self.scalars,
            "lengths": list(self.lengths),
            "fresh": self.fresh,
            "left": list(self.left),
            "compared": [each.to_json() for each in self.compared],
        }


def certify(
    subject: AuditedModel,
    rewrite: Rewrite,
    *,
    removed: Sequence[str],
    zeroed: Sequence[str],
    changed: Sequence[str],
    reduced: Sequence[str],
    refused: Sequence[str],
) -> tuple[nn.Module, Certificate]:
    """Build the rewritten model at the original's precision, and compare it with the original in every mode and
    format."""
    rewritten = rewrite.rounded()
    cases = Cases.of(copy_of(subject.model, torch.float64).eval(), subject.inputs, subject.observe)
    drawn = inputs_to_compare(cases)
    modes = [False, True] if subject.training else [False]
    rows = [row for mode in modes for row in _rows(subject, rewrite, rewritten, drawn, mode)]
    certificate = Certificate(
        removed=tuple(removed),
        zeroed=tuple(zeroed),
        changed=tuple(changed),
        reduced=tuple(reduced),
        refused=tuple(refused),
        scalars=sum(subject.tracked[name].size for name in (*removed, *zeroed)),
        compared=tuple(rows),
        lengths=cases.lengths,
        fresh=len(drawn),
    )
    return rewritten, certificate


def is_exact(subject: AuditedModel, rewrite: Rewrite) -> bool:
    """Test whether a rewrite computes the same in evaluation mode, in float64."""
    cases = Cases.of(copy_of(subject.model, torch.float64).eval(), subject.inputs, subject.observe)
    return _in_float64(subject, rewrite, inputs_to_compare(cases), False)[0].passed


def inputs_to_compare(cases: Cases) -> list[Inputs]:
    """List the example at every length, and fresh inputs if the model takes them."""
    drawn = [each.example for each in cases.templates]
    if cases.fresh:
        drawn += [each.fresh(seed) for each in cases.templates for seed in _FRESH_SEEDS]
    return drawn


def _in_float64(
    subject: AuditedModel, rewrite: Rewrite, drawn: Sequence[Inputs], mode: bool
) -> tuple[Compared, list[Tensor]]:
    """The comparison in float64, and the original's outputs.

    Every run uses a copy of its own, because a run in training mode changes a model's running statistics; the copies
    are in memory one after the other.
    """
    exact = _outputs(copy_of(subject.model, torch.float64).train(mode), drawn, subject.observe)
    probe = Probe(copy_of(subject.model, torch.float64).train(mode), subject.tracked, subject.observe)
    bound = probe.rounding([(0, inputs) for inputs in drawn[:3]])
    del probe
    difference = largest_difference(_outputs(rewrite.exact().train(mode), drawn, subject.observe), exact)
    row = Compared(mode=_MODES[mode], dtype="float64", difference=difference, rounding=bound, bound=bound)
    return row, exact


def _rows(
    subject: AuditedModel, rewrite: Rewrite, rewritten: nn.Module, drawn: Sequence[Inputs], mode: bool
) -> Iterator[Compared]:
    """The comparisons in one mode: in float64, then in the lower precisions."""
    row, exact = _in_float64(subject, rewrite, drawn, mode)
    yield row
    condition = row.bound / torch.finfo(torch.float64).eps / 2**8
    for name, dtype in _LOWER_PRECISIONS.items():
        cast_inputs = [cast(inputs, dtype) for inputs in drawn]
        try:
            before = _outputs(copy_of(subject.model, dtype).train(mode), cast_inputs, subject.observe)
        except (RuntimeError, NotImplementedError, TypeError) as error:  # the original does not run in this format
            yield _skipped(mode, name, (str(error).splitlines() or [""])[0] or "it fails")
            continue
        rounding = largest_difference(before, exact)
        if rounding == math.inf:
            yield _skipped(mode, name, "its own output overflows in this format or is not a number")
            continue
        difference = largest_difference(
            _outputs(copy_of(rewritten, dtype).train(mode), cast_inputs, subject.observe), before
        )
        yield Compared(
            mode=_MODES[mode],
            dtype=name,
            difference=difference,
            rounding=rounding,
            bound=error_bound(rounding, condition, dtype),
        )


def _skipped(mode: bool, dtype: str, why: str) -> Compared:
    return Compared(mode=_MODES[mode], dtype=dtype, difference=0.0, rounding=0.0, bound=0.0, skipped=why)


def error_bound(rounding: float, condition: float, dtype: torch.dtype) -> float:
    """Bound the difference of two models in one number format that differ only by rounding.

    Args:
        rounding: the measured rounding error of the original.
        condition: relative change of the output over that of the weights.
        dtype: the number format, whose unit roundoff is half of its eps.
    """
    return _ROUNDING_FACTOR * max(rounding, condition * torch.finfo(dtype).eps / 2)


@torch.no_grad()
def _outputs(copied: nn.Module, drawn: Sequence[Inputs], observe: Observe) -> list[Tensor]:
    if next(copied.parameters()).dtype == torch.float64:
        with Float64Mode():
            return [flat_output(copied, inputs, observe) for inputs in drawn]
    return [flat_output(copied, inputs, observe) for inputs in drawn]


def flat_output(model: nn.Module, inputs: Inputs, observe: Observe) -> Tensor:
    """Call a model and return all observed numbers in one float64 vector."""
    return torch.cat([tensor.double().flatten() for tensor in observed(call(model, inputs), observe)])


def largest_difference(outputs: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest difference of two models' outputs, relative to the expected outputs' root mean square;
    infinity if the sizes differ, if only one of the two is finite, or if neither is."""
    worst = 0.0
    for one, other in zip(outputs, expected, strict=True):
        finite = torch.isfinite(other)
        if one.shape != other.shape or not bool(finite.any()) or not bool((torch.isfinite(one) == finite).all()):
            return float("inf")
        scale = other[finite].square().mean().sqrt().clamp_min(torch.finfo(torch.float64).tiny)
        worst = max(worst, float((one - other)[finite].abs().max() / scale))
    return worst
