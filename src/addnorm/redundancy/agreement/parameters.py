"""Agreement of two models' parameters, entry by entry, up to the null space.

A parameter that no rewrite touches must be equal, up to a few units in the last place of each entry. Those that a rewrite
touches may differ by a null vector δ, computed in float64 and rounded once when it is stored:

    b = a + δ + ε,     |ε_j| ≤ u (|a_j| + |b_j|)          u: unit roundoff of the coarser format

What is left of b - a outside of the null space is (I - P) ε, whose entry i is Σ_j (I - P)_ij ε_j. Rounding errors are
uniform in their last place, so that the sum has a standard deviation of at most s_i / √3 with s_i² = Σ_j ((I - P)_ij ε_j)².
s_i is estimated from 32 draws of ε at random signs; it is at least 0.6 of its true value except with probability 1e-6.
Six standard deviations are therefore at most 6 s_i / (0.6 √3) ≤ 6 s_i.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from addnorm.errors import InputError
from addnorm.redundancy.execution.tracked_parameters import TrackedParameters
from addnorm.redundancy.graph.null_space import NullSpace

_FEW_UNITS = 4
"""Units in the last place by which an entry that no rewrite touches may differ."""
_DRAWS = 32
_DEVIATIONS = 6
_UNREAD = ("num_batches_tracked",)
"""Integer buffers that no output depends on: the average momentum of a batch norm's statistics."""


@dataclass(frozen=True, kw_only=True)
class ParameterAgreement:
    """Comparison of two models' parameters. All numbers are absolute."""

    parameter: str
    """The parameter whose difference is largest, relative to its bound."""
    difference: float
    """Its largest difference, relative to the bound, outside of the null space."""
    bound: float
    """Difference of that entry that rounding explains."""
    moved: float
    """Largest difference of a parameter, including the null space."""
    rounding: Mapping[str, Tensor]
    """Largest rounding error of every entry of the first model's parameters that accounts for its difference; zero where
    both models are equal."""

    @property
    def agreed(self) -> bool:
        """True if rounding explains every entry."""
        return self.difference <= self.bound


def compare_parameters(
    first: nn.Module, second: nn.Module, tracked: TrackedParameters, null_space: NullSpace, *, training: bool
) -> ParameterAgreement:
    """Compare two models' parameters and buffers up to the first model's null space.

    Args:
        first: the model with more parameters.
        second: the other one. Tracked parameters that it lacks count as zeros.
        tracked: the first model's tracked parameters.
        null_space: the null space at the first model's weights.
        training: True if running statistics have no effect.

    Raises:
        InputError: the models' weights differ in name or shape.
    """
    ours, theirs = _state(first), _state(second)
    _check_same_shapes(ours, theirs, {alias for entry in tracked.entries for alias in entry.aliases})
    theirs = {name: theirs.get(name, torch.zeros_like(value)) for name, value in ours.items()}
    # Weights that are equal are the most part of a model, and are not converted to float64.
    pairs = {
        name: (value.double(), theirs[name].double(), max(_eps(value), _eps(theirs[name])))
        for name, value in ours.items()
        if value.is_floating_point()
        and value.numel()
        and (name in tracked.by_name or name.endswith("running_mean") or not torch.equal(value, theirs[name]))
        and not _repeats(name, first, ours, theirs)
    }
    differences = {name: torch.where(a == b, 0.0, b - a) for name, (a, b, _) in pairs.items()}
    moved = max((float(each.abs().max()) for each in differences.values()), default=0.0)
    explained = {name: eps / 2 * (a.abs() + b.abs()) for name, (a, b, eps) in pairs.items()}
    allowed = {name: _FEW_UNITS * eps * torch.maximum(a.abs(), b.abs()) for name, (a, b, eps) in pairs.items()}
    for name, (shift, error) in _running_means_as_shifts(first, ours, pairs, differences, training).items():
        if shift is None:
            del differences[name], allowed[name]
        else:
            differences[name], explained[name], allowed[name] = shift, explained[name] + error, allowed[name] + error
    rest, bounds = _outside(null_space, tracked, differences, explained)
    rest, bounds = differences | rest, allowed | bounds
    name, at = _worst(rest, bounds)
    # Of several parameters that are too far apart, one is named that differs itself, not by projection.
    own, at_own = _worst({each: rest[each] for each in rest if bool(differences[each].any())}, bounds)
    if own and float((rest[own].abs() - bounds[own]).flatten()[at_own]) > 0:
        name, at = own, at_own
    integers = _unequal_integers(ours, theirs)
    if integers:
        return ParameterAgreement(parameter=integers[0], difference=1.0, bound=0.0, moved=max(moved, 1.0), rounding={})
    return ParameterAgreement(
        parameter=name,
        difference=float(rest[name].abs().flatten()[at]),
        bound=float(bounds[name].flatten()[at]),
        moved=moved,
        rounding={
            each: torch.where(differences[each] == 0, 0.0, torch.minimum(explained[each], differences[each].abs()))
            if each not in null_space.tracked.by_name
            else explained[each]
            for each in differences
            if bool(differences[each].any())
        },
    )


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu() for name, value in model.state_dict().items()}


def _repeats(name: str, model: nn.Module, ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> bool:
    """True for a further name of a shared parameter that the other model shares too."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    if name not in parameters:
        return False
    original = next(each for each, other in parameters.items() if other is parameters[name])
    return original != name and torch.equal(theirs[name], theirs[original])


def _check_same_shapes(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], tracked: set[str]) -> None:
    unmatched = [name for name in ours.keys() ^ theirs.keys() if name not in tracked]
    unequal = [name for name in ours.keys() & theirs.keys() if ours[name].shape != theirs[name].shape]
    if unmatched or unequal:
        some = ", ".join(sorted([*unmatched, *unequal])[:5])
        raise InputError(f"expected two models whose parameters match in name and shape, got different ones: {some}.")


def _unequal_integers(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> list[str]:
    return [
        name
        for name, value in ours.items()
        if not value.is_floating_point() and not name.endswith(_UNREAD) and not torch.equal(value, theirs[name])
    ]


def _eps(value: Tensor) -> float:
    return torch.finfo(value.dtype).eps if value.is_floating_point() else 0.0


def _running_means_as_shifts(
    model: nn.Module,
    state: Mapping[str, Tensor],
    pairs: Mapping[str, tuple[Tensor, Tensor, float]],
    differences: Mapping[str, Tensor],
    training: bool,
) -> dict[str, tuple[Tensor | None, Tensor]]:
    """Differences of norms' shifts that include those of running means with the same effect, as in γ(x - μ)/σ + β, with
    the rounding error of the means. None where a difference has no effect of its own, as running means in training."""
    replaced: dict[str, tuple[Tensor | None, Tensor]] = {}
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        mean, variance, bias = f"{prefix}running_mean", f"{prefix}running_var", f"{prefix}bias"
        if not isinstance(module, _BatchNorm) or mean not in pairs:
            continue
        if training:
            replaced[mean] = (None, torch.zeros(()))
        elif bias in pairs:
            scale = state[f"{prefix}weight"].double() / (state[variance].double() + module.eps).sqrt()
            ours, theirs, eps = pairs[mean]
            error = scale.abs() * eps / 2 * (ours.abs() + theirs.abs())
            replaced[bias] = (differences[bias] - scale * differences[mean], error)
            replaced[mean] = (None, torch.zeros(()))
    return replaced


def _outside(
    null_space: NullSpace,
    tracked: TrackedParameters,
    differences: Mapping[str, Tensor],
    explained: Mapping[str, Tensor],
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The differences of the parameters that a rewrite touches outside of the null space, and their bounds."""
    generator = torch.Generator().manual_seed(0)
    columns: dict[str, Tensor] = {}
    for entry in tracked.entries:
        if entry.coordinates != "entries" or entry.name not in differences:
            continue
        change, size = differences[entry.name].reshape(-1, 1), entry.size
        signs = 2.0 * torch.randint(0, 2, (size, _DRAWS), generator=generator) - 1
        columns[entry.name] = torch.cat([change, signs * explained[entry.name].reshape(-1, 1)], dim=1)
    largest = max((float(each[:, 0].abs().max()) for each in columns.values()), default=0.0)
    # The projection itself is computed in float64.
    floor = torch.finfo(torch.float64).eps * tracked.size * largest
    rest: dict[str, Tensor] = {}
    bounds: dict[str, Tensor] = {}
    for name, near in null_space.project_columns(columns).items():
        if name not in columns:
            continue
        apart = columns[name] - near
        spread = apart[:, 1:].square().mean(1).sqrt()
        rest[name] = apart[:, 0].reshape(differences[name].shape)
        bounds[name] = (_DEVIATIONS * spread + floor).reshape(differences[name].shape)
    return rest, bounds


def _worst(rest: Mapping[str, Tensor], bounds: Mapping[str, Tensor]) -> tuple[str, int]:
    """The parameter and the position of the entry with the largest difference relative to its bound."""
    tiny = torch.finfo(torch.float64).tiny
    worst = ("", 0, -1.0, -1.0)
    for name, value in rest.items():
        ratio = (value.abs() / bounds[name].clamp_min(tiny)).flatten()
        at = int(ratio.argmax())
        found = (name, at, float(ratio[at]), float(bounds[name].flatten()[at]))
        worst = max(worst, found, key=lambda each: each[2:])
    return worst[0], worst[1]
