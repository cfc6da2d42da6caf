"""Equivalence of two models: whether their parameters differ only along directions that leave the output unchanged."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from addnorm.errors import InputError
from addnorm.redundancy.analysis import audit
from addnorm.redundancy.execution.checks import check_model
from addnorm.redundancy.execution.copies import PROCESS_LOCK, copy_of
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.execution.tracked_parameters import TrackedParameters
from addnorm.redundancy.graph.null_space import NullSpace

_ROUNDING_UNITS = 2**4
"""Units in the last place of the largest parameter up to which parameters count as equal: a fold adds a few products
and rounds the sum once."""


@dataclass(frozen=True, kw_only=True)
class Equivalence:
    """Result of a comparison of two models. True in a boolean context if they are equivalent."""

    equivalent: bool
    """True if the models are equal up to the null space: the rest of their difference is rounding."""
    difference: float
    """Largest difference of a parameter in canonical form."""
    parameter: str
    """Name of that parameter."""
    bound: float
    """Largest difference of that parameter that the rounding of its number format explains."""
    moved: float
    """Largest difference of a parameter without the canonical form."""

    def __bool__(self) -> bool:
        return self.equivalent

    def to_json(self) -> dict[str, Any]:
        """Return the content of `addnorm audit --diff --json`."""
        return {
            "equivalent": self.equivalent,
            "difference": self.difference,
            "parameter": self.parameter,
            "bound": self.bound,
            "moved": self.moved,
        }


def equivalent(
    a: nn.Module, b: nn.Module, inputs: Any, *, observe: Observe = "logits", training: bool = False
) -> Equivalence:
    """Test whether two models of one architecture differ only along directions that change nothing.

    Biases that only one of the two models has count as zeros in the other: a stripped model is equivalent to the
    original.

    Example:

        >>> import torch, addnorm
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).eval()
        >>> x = torch.randn(2, 5, 8)
        >>> smaller, _ = addnorm.audit(layer, x).strip()
        >>> bool(addnorm.equivalent(layer, smaller, x))
        True

    Args:
        a: one model.
        b: the other model.
        inputs: inputs of both.
        observe: the observed output.
        training: compare in training mode.

    Raises:
        InputError: the models' weights differ in name or shape, or a model cannot be audited.
    """
    check_model(a)
    check_model(b)
    first, second = (b, a) if _count(b) > _count(a) else (a, b)
    subject = audit(first, inputs, observe=observe, training=training).subject
    assert subject is not None
    with PROCESS_LOCK:
        null_space = subject.null_space
        first_state, second_state = _float64_state(first), _float64_state(second)
        aliases = {alias: entry.name for entry in subject.tracked.entries for alias in entry.aliases}
        _check_same_shapes(first_state, second_state, set(aliases))
        differences = {
            name: second_state.get(name, torch.zeros_like(value)) - value
            for name, value in first_state.items()
            if value.is_floating_point()
        }
        differences = _running_means_as_shifts(first, first_state, differences, training)
        moved = max((float(each.abs().max()) for each in differences.values() if each.numel()), default=0.0)
        rest = differences | _outside(null_space, subject.tracked, differences)
    bounds = {name: _bound(first, first_state, name, aliases) for name in rest}
    name = max(rest, key=lambda each: float(rest[each].abs().max()) / bounds[each])
    difference, bound = float(rest[name].abs().max()), bounds[name]
    return Equivalence(equivalent=difference <= bound, difference=difference, parameter=name, bound=bound, moved=moved)


def _running_means_as_shifts(
    model: nn.Module, state: dict[str, Tensor], differences: dict[str, Tensor], training: bool
) -> dict[str, Tensor]:
    """Replace differences of running means by those of the norms' shifts with the same effect, as in γ(x - μ)/σ + β. In
    training mode running means have no effect."""
    replaced = dict(differences)
    for name, module in model.named_modules():
        if not isinstance(module, _BatchNorm) or module.running_mean is None or module.running_var is None:
            continue
        mean = replaced.pop(f"{name}.running_mean")
        if not training and f"{name}.bias" in replaced:
            scale = state[f"{name}.weight"] / (state[f"{name}.running_var"] + module.eps).sqrt()
            replaced[f"{name}.bias"] = replaced[f"{name}.bias"] - scale * mean
        elif not training:
            replaced[f"{name}.running_mean"] = mean
    return replaced


def _outside(null_space: NullSpace, tracked: TrackedParameters, differences: dict[str, Tensor]) -> dict[str, Tensor]:
    """The part of the tracked parameters' differences that is orthogonal to the null space."""
    own = {entry.name: differences[entry.name] for entry in tracked.entries if entry.coordinates == "entries"}
    projection = null_space.project(own)
    return {name: value - projection[name] if name in projection else value for name, value in own.items()}


def _bound(model: nn.Module, state: dict[str, Tensor], name: str, aliases: dict[str, str]) -> float:
    dtype = model.state_dict()[name].dtype
    # A fold adds products with other biases to a bias, so its rounding error is relative to the largest of them.
    peers = [state[each] for each in aliases if each in state] if name in aliases else [state[name]]
    largest = max((float(each.abs().max()) for each in peers if each.numel()), default=1.0)
    return _ROUNDING_UNITS * torch.finfo(dtype).eps * max(largest, 1.0)


def _float64_state(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: value.double() if value.is_floating_point() else value
        for name, value in copy_of(model, None).state_dict().items()
    }


def _check_same_shapes(first: dict[str, Tensor], second: dict[str, Tensor], tracked: set[str]) -> None:
    unmatched = [name for name in first.keys() ^ second.keys() if name not in tracked]
    unequal = [name for name in first.keys() & second.keys() if first[name].shape != second[name].shape]
    if unmatched or unequal:
        some = ", ".join(sorted([*unmatched, *unequal])[:5])
        raise InputError(f"expected two models whose parameters match in name and shape, got different ones: {some}.")


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
