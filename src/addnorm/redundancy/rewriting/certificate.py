"""Certificate of a rewrite: the difference of both models' outputs, compared with the original model's own rounding
error.

The rewrite is judged before and after its numbers are rounded for storage. Before: both models in float64, where the
difference must be float64's rounding and observed integers must be equal. After: a model stored in bfloat16 or float16
is judged in float64 with the stored numbers, and in its own format; others in float32 and bfloat16. The stored numbers
of the absorbing parameters are rounded once, which the bound includes: it is the change of the output when each of them
moves by its own rounding error, times four, at random signs.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.fresh_inputs import cast
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe, ObservedNumbers
from addnorm.redundancy.numeric.probe import SAFETY, Probe
from addnorm.redundancy.rewriting.audited_model import AuditedModel
from addnorm.redundancy.rewriting.output_difference import flat_outputs, floats_changed, integers_changed
from addnorm.redundancy.rewriting.rewritten_model import Rewrite
from addnorm.redundancy.rewriting.storage_rounding import DRAWS, half_precision, rounding_moves
from addnorm.redundancy.rewriting.stripped_file import write_stripped
from addnorm.redundancy.verdict.finding import InJson

_ROUNDING_FACTOR = 4
"""Two models that round independently differ by up to the sum of their errors, and the largest of a few hundred errors
varies by a factor of about two."""
_MODES = {True: "training", False: "eval"}
_FRESH_SEEDS = (101, 102)
"""Seeds of inputs that the audit has not used."""
_MOVE_SEEDS = (0, 1, 2)
"""Seeds of moves along the null space, which must not change an observed integer."""
_FAR = (1.0, 16.0, 256.0)
"""Sizes of these moves: an integer changes only beyond a threshold."""


@dataclass(frozen=True, kw_only=True)
class Compared(InJson):
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
    stored: str = ""
    """The number format to which the rewritten model's numbers were rounded before the comparison in float64; empty if
    they were not."""
    integers: int = 0
    """Number of observed integers and booleans."""
    integers_changed: int = 0
    """Number of these that differ. In float64 none may, also where the original moves along the null space; elsewhere
    rounding decides comparisons, and they are not judged."""

    @property
    def passed(self) -> bool:
        """True if the difference is within its bound, and no integer differs in float64 before rounding."""
        judged = self.dtype == "float64" and not self.stored
        within = self.difference <= self.bound < math.inf
        return bool(self.skipped) or (within and not (judged and self.integers_changed))

    def to_json(self) -> dict[str, Any]:
        """Return its row of the certificate in JSON."""
        return {**super().to_json(), "passed": self.passed}


@dataclass(frozen=True, kw_only=True)
class Certificate(InJson):
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
    lengths: tuple[int, ...]
    """Other input lengths compared, besides the example's."""
    fresh: int
    """Number of inputs compared, over all lengths."""
    left: tuple[str, ...] = ()
    """Parameters that can be removed in a smaller model of the class but not by transfer from it, with the reason."""
    float32: tuple[str, ...] = ()
    """Absorbing parameters that are stored in float32, in a model of lower precision."""
    compared: tuple[Compared, ...]

    @property
    def passed(self) -> bool:
        """True if every comparison is within its bound."""
        return all(each.passed for each in self.compared)

    def save(
        self, model: nn.Module, path: str | Path, *, target: str = "", config: str = "", force: bool = False
    ) -> None:
        """Write the stripped model's weights (safetensors), with metadata that name what is missing on purpose.

        Args:
            model: the stripped model that this certificate is about.
            path: of the file.
            target: the original model as a target of `addnorm audit`, so that the file is a target too.
            config: the target's configuration, as JSON.
            force: write the file although the certificate failed.

        Raises:
            InputError: the certificate failed.
        """
        if not self.passed and not force:
            raise InputError(
                "expected a certificate that passed, got one that failed, so the file would not be the same model. Pass "
                "force=True to write it."
            )
        names = {"removed": self.removed, "zeroed": self.zeroed, "changed": self.changed, "float32": self.float32}
        write_stripped(model, Path(path), names, target=target, config=config)

    def to_json(self) -> dict[str, Any]:
        """Return its entry in `addnorm audit --strip --json`."""
        return {"passed": self.passed, **super().to_json()}


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
    rewritten, float32 = rewrite.rounded(subject.inputs)
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
        float32=float32,
    )
    return rewritten, certificate


def is_exact(subject: AuditedModel, rewrite: Rewrite) -> bool:
    """Test whether a rewrite computes the same in evaluation mode, in float64."""
    cases = Cases.of(copy_of(subject.model, torch.float64).eval(), subject.inputs, subject.observe)
    return _in_float64(subject, rewrite, inputs_to_compare(cases), False)[0].passed


def inputs_to_compare(cases: Cases) -> list[Inputs]:
    """List the example at every length, and fresh inputs if the model takes them."""
    # Inputs that neither method of the audit has seen, so that the certificate is not a repetition.
    drawn = [each.example for each in cases.templates]
    if cases.fresh:
        drawn += [each.fresh(seed) for each in cases.templates for seed in _FRESH_SEEDS]
    return drawn


def _in_float64(
    subject: AuditedModel, rewrite: Rewrite, drawn: Sequence[Inputs], mode: bool
) -> tuple[Compared, list[ObservedNumbers], float]:
    """The comparison in float64, the original's outputs, and the condition number of a difference of two models.

    Every run uses a copy of its own, because a run in training mode changes a model's running statistics; the copies
    are in memory one after the other.
    """
    exact = _outputs(copy_of(subject.model, torch.float64).train(mode), drawn, subject.observe)
    # The bound comes from the original alone. Measured on the rewritten model, a wrong rewrite that amplifies rounding
    # would pass by its own fault.
    probe = Probe(copy_of(subject.model, torch.float64).train(mode), subject.tracked, subject.observe)
    # Twice, since both outputs are rounded, in different orders.
    condition = 2 * probe.condition([(0, inputs) for inputs in drawn[:3]])
    bound = SAFETY * condition * probe.eps
    del probe
    outputs = _outputs(rewrite.exact().train(mode), drawn, subject.observe)
    row = compared(outputs, exact, torch.float64, bound, bound, training=mode)
    if row.integers:
        row = replace(row, integers_changed=row.integers_changed + _changed_by_moves(subject, drawn, exact, mode))
    return row, exact, condition


def _changed_by_moves(
    subject: AuditedModel, drawn: Sequence[Inputs], exact: Sequence[ObservedNumbers], mode: bool
) -> int:
    """Number of observed integers that change when the original moves along its null space, near and far."""
    space, tracked = subject.null_space, subject.tracked
    changed = 0
    for seed in _MOVE_SEEDS if space.dim else ():
        # Integers that no rounding moves may still sit on a threshold that another null vector passes; then the proof
        # is wrong although these two models agree.
        move = space.sample(torch.Generator().manual_seed(seed))
        largest = max(float(each.abs().max()) for each in move.values())
        for factor in _FAR:
            moved = copy_of(subject.model, torch.float64).train(mode)
            state = tracked.moved(moved, {name: each * (factor / largest) for name, each in move.items()})
            parameters = dict(moved.named_parameters(remove_duplicate=False))
            with torch.no_grad():
                for name, value in state.items():
                    parameters[name].copy_(value)
            changed += integers_changed(_outputs(moved, drawn, subject.observe), exact)
    return changed


def _rows(
    subject: AuditedModel, rewrite: Rewrite, rewritten: nn.Module, drawn: Sequence[Inputs], mode: bool
) -> Iterator[Compared]:
    """The comparisons in one mode: in float64, then in the model's own format or in two lower ones."""
    row, exact, condition = _in_float64(subject, rewrite, drawn, mode)
    yield row
    storage = half_precision(subject.model)
    by_storage = 0.0
    if storage is not None:
        planned = _outputs(rewrite.exact().train(mode), drawn, subject.observe)
        # The rewrite against itself: how far may rounding of the stored sums move its output? It says nothing about
        # whether the sums are right, which the row above has decided.
        by_storage = max(
            floats_changed(
                _outputs(
                    replace(rewrite, values=rounding_moves(rewrite, rewritten, seed)).exact().train(mode),
                    drawn,
                    subject.observe,
                ),
                planned,
            )
            for seed in range(DRAWS)
        )
        outputs = _outputs(copy_of(rewritten, torch.float64).train(mode), drawn, subject.observe)
        bound = row.bound + by_storage
        yield compared(outputs, exact, torch.float64, by_storage, bound, training=mode, stored=storage)
    for dtype in (torch.float32, torch.bfloat16) if storage is None else (storage,):
        cast_inputs = [cast(inputs, dtype) for inputs in drawn]
        own = None if storage is not None else dtype  # a model of mixed formats runs as it is stored
        try:
            before = _outputs(copy_of(subject.model, own).train(mode), cast_inputs, subject.observe)
        except (RuntimeError, NotImplementedError, TypeError) as error:  # the original does not run in this format
            yield _skipped(mode, dtype, (str(error).splitlines() or [""])[0] or "it fails")
            continue
        # The original against itself in float64 is its own error in this format, the yardstick for both models.
        rounding = floats_changed(before, exact)
        if rounding == math.inf:
            yield _skipped(mode, dtype, "its own output overflows in this format or is not a number")
            continue
        outputs = _outputs(copy_of(rewritten, own).train(mode), cast_inputs, subject.observe)
        bound = error_bound(rounding, condition, dtype) + by_storage
        yield compared(outputs, before, dtype, rounding, bound, training=mode)


def _skipped(mode: bool, dtype: torch.dtype, why: str) -> Compared:
    return Compared(mode=_MODES[mode], dtype=_name(dtype), difference=0.0, rounding=0.0, bound=0.0, skipped=why)


def error_bound(rounding: float, condition: float, dtype: torch.dtype) -> float:
    """Bound the difference of two models in one number format that differ only by rounding.

    Args:
        rounding: the measured rounding error of the original.
        condition: relative change of the output over that of the weights.
        dtype: the number format, whose unit roundoff is half of its eps.
    """
    return _ROUNDING_FACTOR * max(rounding, condition * torch.finfo(dtype).eps / 2)


def _outputs(copied: nn.Module, drawn: Sequence[Inputs], observe: Observe) -> list[ObservedNumbers]:
    mode = Float64Mode() if next(copied.parameters()).dtype == torch.float64 else None
    return flat_outputs(copied, drawn, observe, mode)


def compared(
    outputs: Sequence[ObservedNumbers],
    expected: Sequence[ObservedNumbers],
    dtype: torch.dtype,
    rounding: float,
    bound: float,
    *,
    training: bool = False,
    stored: torch.dtype | None = None,
) -> Compared:
    """Compare the observed numbers of two models; the arguments are fields of the row."""
    return Compared(
        mode=_MODES[training],
        dtype=_name(dtype),
        difference=floats_changed(outputs, expected),
        rounding=rounding,
        bound=bound,
        stored=_name(stored) if stored else "",
        integers=sum(each.integers.numel() for each in expected),
        integers_changed=integers_changed(outputs, expected),
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
