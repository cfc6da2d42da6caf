"""How far a rewritten model's output is from the original's, beside the rounding that the original makes by itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.audit.cases import Cases
from addnorm.audit.copying import call, copy_of
from addnorm.audit.fresh import cast
from addnorm.audit.inputs import Inputs
from addnorm.audit.lift import Lift
from addnorm.audit.observe import Observe, observed
from addnorm.audit.probe import Probe
from addnorm.audit.subject import Subject

_DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
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
        return bool(self.skipped) or self.difference <= self.bound

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
            "compared": [each.to_json() for each in self.compared],
        }


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An original and its rewrite, both at the original's precision, and the rewrite before it was rounded to that."""

    original: nn.Module
    rewritten: nn.Module
    exact: nn.Module
    """The rewrite in float64."""


def compare_all(
    pair: Pair, subject: Subject, modes: Sequence[bool], formats: Sequence[str] = tuple(_DTYPES)
) -> tuple[tuple[Compared, ...], tuple[int, ...], int]:
    """Compare on fresh inputs and other lengths, in every mode and number format.

    Returns:
        The comparisons, the other lengths, and the number of inputs.
    """
    reference = copy_of(pair.original, torch.float64).eval()
    cases = Cases.of(reference, subject.inputs, subject.observe)
    drawn = [each.example for each in cases.kinds]
    if cases.fresh:
        drawn += [each.fresh(seed) for each in cases.kinds for seed in (101, 102)]
    found = [row for mode in modes for row in _mode(pair, subject, reference.train(mode), drawn, mode, formats)]
    return tuple(found), cases.lengths, len(drawn)


def _mode(
    pair: Pair, subject: Subject, reference: nn.Module, drawn: Sequence[Inputs], mode: bool, formats: Sequence[str]
) -> list[Compared]:
    def outputs(model: nn.Module, dtype: torch.dtype) -> list[Tensor]:
        # Batch statistics change a model that is run in training mode, so every run has a copy of its own.
        copied = copy_of(model, dtype).train(mode)
        with torch.no_grad():
            if dtype == torch.float64:
                with Lift():
                    return [_flat(copied, inputs, subject.observe) for inputs in drawn]
            return [_flat(copied, cast(inputs, dtype), subject.observe) for inputs in drawn]

    exact = outputs(reference, torch.float64)
    probe = Probe(copy_of(reference, torch.float64).train(mode), subject.tracked, subject.observe)
    bound = probe.rounding([(0, inputs) for inputs in drawn[:3]])
    unit = bound / torch.finfo(torch.float64).eps / 2**8
    found = []
    for name in formats:
        dtype = _DTYPES[name]
        if name == "float64":
            difference = _largest(outputs(pair.exact, dtype), exact)
            found.append(Compared(mode=_MODES[mode], dtype=name, difference=difference, rounding=bound, bound=bound))
            continue
        try:
            before = outputs(pair.original, dtype)
        except (
            RuntimeError,
            NotImplementedError,
            TypeError,
        ) as error:  # the original itself does not run in this format
            said = (str(error).splitlines() or [""])[0]
            found.append(
                Compared(
                    mode=_MODES[mode], dtype=name, difference=0.0, rounding=0.0, bound=0.0, skipped=said or "it fails"
                )
            )
            continue
        own = _largest(before, exact)
        limit = _ROUNDINGS * max(own, unit * torch.finfo(dtype).eps)
        difference = _largest(outputs(pair.rewritten, dtype), before)
        found.append(Compared(mode=_MODES[mode], dtype=name, difference=difference, rounding=own, bound=limit))
    return found


def _flat(model: nn.Module, inputs: Inputs, observe: Observe) -> Tensor:
    return torch.cat([tensor.double().flatten() for tensor in observed(call(model, inputs), observe)])


def _largest(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    worst = 0.0
    for one, other in zip(found, expected, strict=True):
        finite = torch.isfinite(other)
        if not bool((torch.isfinite(one) == finite).all()):
            return float("inf")
        scale = other[finite].square().mean().sqrt().clamp_min(torch.finfo(torch.float64).tiny)
        worst = max(worst, float((one - other)[finite].abs().max() / scale))
    return worst
