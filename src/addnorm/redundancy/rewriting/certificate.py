"""How far a rewritten model's output is from the original's, beside the rounding that the original makes by itself."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.copies import call, copy_of
from addnorm.redundancy.execution.float64 import Lift
from addnorm.redundancy.execution.fresh_inputs import cast
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe, observed
from addnorm.redundancy.numeric.probe import Probe
from addnorm.redundancy.rewriting.rewritten_model import Rewrite
from addnorm.redundancy.subject import Subject

_ROUNDED = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_ROUNDINGS = 4
"""Two models that round independently differ by up to the sum of their errors, and the largest of a few hundred errors
scatters by a factor of about two."""
_MODES = {True: "training", False: "eval"}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The two models in one mode and one number format. All numbers are relative to the output's root mean square."""

    mode: str
    dtype: str
    difference: float
    """Largest difference of an observed number, over all inputs and lengths."""
    rounding: float
    """Largest error that the unmodified model makes by rounding: against its float64 self; in float64, its bound."""
    bound: float
    """What the difference must not exceed."""
    skipped: str = ""
    """Why nothing was compared: the unmodified model's own error."""

    @property
    def passed(self) -> bool:
        """Whether the difference is within its bound."""
        return bool(self.skipped) or self.difference <= self.bound < math.inf

    def to_json(self) -> dict[str, Any]:
        """Its row of the certificate in JSON."""
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
    """What was changed, and that it does not matter."""

    removed: tuple[str, ...]
    """Parameters that are gone."""
    zeroed: tuple[str, ...]
    """Parameters that are zeros which no longer train, because the class that reads them needs numbers."""
    changed: tuple[str, ...]
    """Parameters and running statistics that took over."""
    reduced: tuple[str, ...]
    """Parameters that stay without their redundant directions: part of a fused bias, the mean before a layer norm."""
    refused: tuple[str, ...]
    """Parameters that could go, were it not for `max_amplification`."""
    scalars: int
    """Numbers removed or zeroed."""
    compared: tuple[Compared, ...]
    lengths: tuple[int, ...]
    """Other lengths compared at, besides the example's."""
    fresh: int
    """Fresh inputs compared, over all lengths."""
    left: tuple[str, ...] = ()
    """What could go in a smaller model of the class but could not be carried over from there, with the reason."""

    @property
    def passed(self) -> bool:
        """Whether every comparison is within its bound."""
        return all(each.passed for each in self.compared)

    def to_json(self) -> dict[str, Any]:
        """What `addnorm audit --strip --json` prints about it."""
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


def compare_all(
    subject: Subject,
    rewrite: Rewrite,
    made: nn.Module,
    modes: Sequence[bool],
) -> tuple[tuple[Compared, ...], tuple[int, ...], int]:
    """Compare on fresh inputs and other lengths, in every mode and number format.

    Args:
        subject: the original.
        rewrite: what it became, in float64.
        made: the same at the original's precision.
        modes: training (True) or evaluation (False).

    Returns:
        The comparisons, the other lengths, and the number of inputs.
    """
    cases, drawn = _drawn(subject)
    found = [row for mode in modes for row in _mode(subject, rewrite, made, drawn, mode)]
    return tuple(found), cases.lengths, len(drawn)


def is_exact(subject: Subject, rewrite: Rewrite) -> bool:
    """Whether a rewrite computes the same in evaluation mode, in float64."""
    _, drawn = _drawn(subject)
    return _in_float64(subject, rewrite, drawn, False)[0].passed


def _drawn(subject: Subject) -> tuple[Cases, list[Inputs]]:
    cases = Cases.of(copy_of(subject.model, torch.float64).eval(), subject.inputs, subject.observe)
    drawn = [each.example for each in cases.kinds]
    if cases.fresh:
        drawn += [each.fresh(seed) for each in cases.kinds for seed in (101, 102)]
    return cases, drawn


def _in_float64(
    subject: Subject, rewrite: Rewrite, drawn: Sequence[Inputs], mode: bool
) -> tuple[Compared, list[Tensor]]:
    """The comparison, and the original's outputs. One copy in float64 is in memory at a time: batch statistics change a model
    that is run in training mode, so every run has a copy of its own."""
    exact = _outputs(copy_of(subject.model, torch.float64).train(mode), drawn, subject.observe)
    probe = Probe(copy_of(subject.model, torch.float64).train(mode), subject.tracked, subject.observe)
    bound = probe.rounding([(0, inputs) for inputs in drawn[:3]])
    del probe
    difference = largest(_outputs(rewrite.exact().train(mode), drawn, subject.observe), exact)
    found = Compared(mode=_MODES[mode], dtype="float64", difference=difference, rounding=bound, bound=bound)
    return found, exact


def _mode(
    subject: Subject, rewrite: Rewrite, made: nn.Module, drawn: Sequence[Inputs], mode: bool
) -> Iterator[Compared]:
    row, exact = _in_float64(subject, rewrite, drawn, mode)
    yield row
    unit = row.bound / torch.finfo(torch.float64).eps / 2**8
    for name, dtype in _ROUNDED.items():
        cast_inputs = [cast(inputs, dtype) for inputs in drawn]
        try:
            before = _outputs(copy_of(subject.model, dtype).train(mode), cast_inputs, subject.observe)
        except (RuntimeError, NotImplementedError, TypeError) as error:  # the original does not run in this format
            said = (str(error).splitlines() or [""])[0] or "it fails"
            yield _skipped(mode, name, said)
            continue
        own = largest(before, exact)
        if own == math.inf:
            said = "its own output overflows in this format, or is no number"
            yield _skipped(mode, name, said)
            continue
        limit = allowed(own, unit, dtype)
        difference = largest(_outputs(copy_of(made, dtype).train(mode), cast_inputs, subject.observe), before)
        yield Compared(mode=_MODES[mode], dtype=name, difference=difference, rounding=own, bound=limit)


def _skipped(mode: bool, dtype: str, why: str) -> Compared:
    return Compared(mode=_MODES[mode], dtype=dtype, difference=0.0, rounding=0.0, bound=0.0, skipped=why)


def allowed(own: float, condition: float, dtype: torch.dtype) -> float:
    """What two models in one number format may differ by, if rounding is all that differs.

    Args:
        own: the original's error by rounding, as measured.
        condition: relative change of the output over that of the weights.
        dtype: which rounds by at most half of its eps.
    """
    return _ROUNDINGS * max(own, condition * torch.finfo(dtype).eps / 2)


@torch.no_grad()
def _outputs(copied: nn.Module, drawn: Sequence[Inputs], observe: Observe) -> list[Tensor]:
    if next(copied.parameters()).dtype == torch.float64:
        with Lift():
            return [_flat(copied, inputs, observe) for inputs in drawn]
    return [_flat(copied, inputs, observe) for inputs in drawn]


def _flat(model: nn.Module, inputs: Inputs, observe: Observe) -> Tensor:
    return torch.cat([tensor.double().flatten() for tensor in observed(call(model, inputs), observe)])


def largest(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Largest difference of two models' outputs, relative to the second ones' root mean square; infinite where one of them
    alone is finite, where neither is, and where the sizes differ."""
    worst = 0.0
    for one, other in zip(found, expected, strict=True):
        finite = torch.isfinite(other)
        if one.shape != other.shape or not bool(finite.any()) or not bool((torch.isfinite(one) == finite).all()):
            return float("inf")
        scale = other[finite].square().mean().sqrt().clamp_min(torch.finfo(torch.float64).tiny)
        worst = max(worst, float((one - other)[finite].abs().max() / scale))
    return worst
