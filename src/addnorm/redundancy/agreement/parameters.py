"""Agreement of two models' parameters, entry by entry, up to the null space.

A rewrite changes tracked parameters alone, along the null space, and the running means before which a removed bias stood.
All other numbers must be equal: no rewrite touches them, so that not even a unit in the last place is excused. What is
touched may differ by a null vector and by the rounding of the stored sums (`rounding.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from addnorm.redundancy.agreement.numbers import differing, numbers
from addnorm.redundancy.agreement.rounding import explain_by_rounding, half_unit
from addnorm.redundancy.execution.tracked_parameters import TrackedParameters
from addnorm.redundancy.graph.null_space import NullSpace

_UNREAD = ("num_batches_tracked",)
"""Integer buffers that no output depends on: the average momentum of a batch norm's statistics."""


@dataclass(frozen=True, kw_only=True)
class ParameterAgreement:
    """Comparison of two models' parameters. All numbers are absolute."""

    parameter: str = ""
    """The parameter whose difference is largest, relative to its bound; empty if all numbers are equal."""
    difference: float = 0.0
    """Its largest difference, relative to the bound, outside of the null space."""
    bound: float = 0.0
    """Difference of that entry that rounding explains; zero if no rewrite touches it."""
    moved: float = 0.0
    """Largest difference of a parameter, including the null space."""
    rounding: Mapping[str, Tensor] = field(default_factory=dict)
    """Largest rounding error of every entry of the first model's parameters that a rewrite may have touched."""
    rounded_to: str = ""
    """Number format to which one model is the other one rounded; empty if it is not."""

    @property
    def agreed(self) -> bool:
        """True if every untouched number is equal, and rounding explains the others."""
        return self.difference <= self.bound


def compare_parameters(
    first: nn.Module,
    second: nn.Module,
    tracked: TrackedParameters,
    null_space: Callable[[], NullSpace],
    *,
    training: bool,
) -> ParameterAgreement:
    """Compare two models' parameters and buffers up to the first model's null space.

    Args:
        first: one model.
        second: the other one, with parameters and buffers of the same names and shapes.
        tracked: the first model's tracked parameters.
        null_space: computes the null space at the first model's weights; called only if tracked parameters differ and
            nothing else does.
        training: True if running means have no effect.
    """
    ours, theirs = numbers(first), numbers(second)
    apart = [name for name in differing(ours, theirs) if not name.endswith(_UNREAD)]
    differences = {name: _difference(ours[name], theirs[name]) for name in apart}
    moved = max((float(each.max()) for each in map(Tensor.abs, differences.values())), default=0.0)
    shifts = _shifts(first, tracked, ours, theirs, differences, training=training)
    untouched = [name for name in apart if name not in tracked.by_name and name not in shifts.means]
    # The null space is not computed for models that differ elsewhere: no null vector could explain it.
    if untouched:
        worst = max(untouched, key=lambda name: float(differences[name].abs().max()))
        return ParameterAgreement(
            parameter=worst,
            difference=float(differences[worst].abs().max()),
            moved=moved,
            rounded_to=_rounded_to([(ours[name], theirs[name]) for name in apart]),
        )
    parts = list(_parts(null_space(), tracked, shifts, ours, theirs)) if shifts.differences else []
    agreement = max(parts, key=_excess, default=ParameterAgreement())
    return ParameterAgreement(
        parameter=shifts.name(agreement.parameter, apart),
        difference=agreement.difference,
        bound=agreement.bound,
        moved=moved,
        rounding={name: errors for part in parts for name, errors in part.rounding.items()},
    )


def _excess(part: ParameterAgreement) -> tuple[bool, float]:
    """The order of differences: what no rounding excuses comes first, then what exceeds its bound most."""
    return part.difference > part.bound == 0, part.difference / (part.bound or 1.0)


def _difference(ours: Tensor, theirs: Tensor) -> Tensor:
    """Second minus first, entry by entry in float64; its magnitude for complex numbers."""
    if ours.is_complex() or theirs.is_complex():
        return (theirs - ours).abs().double()
    return torch.where(ours == theirs, 0.0, theirs.double() - ours.double())


def _rounded_to(pairs: list[tuple[Tensor, Tensor]]) -> str:
    """The format of the coarser tensors, if each is the finer one rounded."""
    formats = set()
    for pair in pairs:
        if pair[0].dtype == pair[1].dtype or not all(each.is_floating_point() for each in pair):
            return ""
        fine, coarse = sorted(pair, key=lambda each: torch.finfo(each.dtype).eps)
        if not torch.equal(fine.to(coarse.dtype), coarse):
            return ""
        formats.add(str(coarse.dtype).removeprefix("torch."))
    return formats.pop() if len(formats) == 1 else ""


@dataclass(frozen=True, kw_only=True)
class _Shifts:
    """Differences of the tracked parameters, by first name."""

    differences: dict[str, Tensor]
    halves: tuple[dict[str, Tensor], dict[str, Tensor]]
    """Half a unit in the last place of every entry of the first and of the second model, for all tracked parameters."""
    means: dict[str, str]
    """Running means that are counted as shifts of their norms' biases, by the bias, or that have no effect."""

    def name(self, bias: str, apart: Sequence[str]) -> str:
        """Name what differs: a running mean if the bias that it is counted as does not."""
        return next((mean for mean, other in self.means.items() if other == bias and bias not in apart), bias)


def _shifts(
    model: nn.Module,
    tracked: TrackedParameters,
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
    apart: Mapping[str, Tensor],
    *,
    training: bool,
) -> _Shifts:
    """The differences of tracked parameters, with those of running means that have the same effect, as in
    γ(x - μ)/σ + β."""
    differences = {tracked[name].name: change for name, change in apart.items() if name in tracked.by_name}
    halves: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
    for entry in tracked.entries:
        halves[0][entry.name], halves[1][entry.name] = _halves(ours[entry.name], theirs[entry.name])
    means: dict[str, str] = {}
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        mean, bias = f"{prefix}running_mean", f"{prefix}bias"
        if not isinstance(module, _BatchNorm) or mean not in apart:
            continue
        if training:
            means[mean] = ""
        elif bias in tracked.by_name:
            bias = tracked[bias].name
            # gamma (x - mu) / sigma + beta: a mean that moves by d acts as a beta that moves by -gamma d / sigma, and
            # its rounding as rounding of beta.
            scale = ours[f"{prefix}weight"].double() / (ours[f"{prefix}running_var"].double() + module.eps).sqrt()
            differences[bias] = differences.get(bias, torch.zeros_like(scale)) - scale * apart[mean]
            for half, of_mean in zip(halves, _halves(ours[mean], theirs[mean]), strict=True):
                half[bias] = half[bias] + scale.abs() * of_mean
            means[mean] = bias
    return _Shifts(differences=differences, halves=halves, means=means)


def _halves(ours: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
    """Half a unit in the last place of two models' numbers, in the coarser of their formats."""
    coarser = max(ours.dtype, theirs.dtype, key=lambda each: torch.finfo(each).eps)
    return half_unit(ours, coarser), half_unit(theirs, coarser)


def _parts(
    null_space: NullSpace,
    tracked: TrackedParameters,
    shifts: _Shifts,
    ours: Mapping[str, Tensor],
    theirs: Mapping[str, Tensor],
) -> Iterator[ParameterAgreement]:
    """The comparison of every component of the null space in which a parameter differs, and of the parameters that no null
    vector moves."""
    moving: set[str] = set()
    for names, basis in null_space.bases(shifts.differences):
        moving |= set(names)
        sizes = [tracked[name].size for name in names]

        def joined(parts: Mapping[str, Tensor], names: tuple[str, ...] = names) -> Tensor:
            return torch.cat([parts.get(name, torch.zeros(tracked[name].shape)).double().flatten() for name in names])

        test = explain_by_rounding(
            basis,
            (joined(ours), joined(theirs)),
            joined(shifts.differences),
            (joined(shifts.halves[0]), joined(shifts.halves[1])),
            size=tracked.size,
        )
        ends = torch.tensor(sizes).cumsum(0)
        yield ParameterAgreement(
            parameter=names[int((ends <= test.entry).sum())],
            difference=test.difference,
            bound=test.bound,
            rounding={
                name: errors.reshape(tracked[name].shape)
                for name, errors in zip(names, test.errors.split(sizes), strict=True)
            },
        )
    # Outside of every component no rewrite moves anything, so that the bound stays zero.
    for name in (each for each in shifts.differences if each not in moving):
        yield ParameterAgreement(parameter=name, difference=float(shifts.differences[name].abs().max()))
