"""Equivalence of two models: whether their parameters differ only along directions that leave the output unchanged."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from addnorm.errors import InputError
from addnorm.redundancy.analysis import audit
from addnorm.redundancy.execution.checks import check_model
from addnorm.redundancy.execution.copies import PROCESS, copy_of
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.execution.tracked_parameters import Tracked
from addnorm.redundancy.graph.joint_space import Space
from addnorm.redundancy.rewriting.strip import space_at_weights

_STORED = 2**4
"""Units in the last place of the largest parameter up to which two checkpoints' parameters count as the same: folding adds a
few products and rounds the sum once."""


@dataclass(frozen=True, kw_only=True)
class Equivalence:
    """Whether two models compute the same, and how far apart they are otherwise."""

    equivalent: bool
    """Equal up to the null space: what is left of their difference is rounding."""
    difference: float
    """Largest difference of a parameter once both are in canonical form."""
    parameter: str
    """Where that is."""
    bound: float
    """What that parameter's difference must not exceed: the rounding of its number format."""
    moved: float
    """Largest difference of a parameter before, null space and all."""

    def __bool__(self) -> bool:
        return self.equivalent

    def to_json(self) -> dict[str, Any]:
        """What `addnorm audit --diff --json` prints about it."""
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
    """Whether two models of one architecture differ only along directions that change nothing.

    Parameters that only one of the two has, and that its audit follows (biases), are zeros in the other: a stripped model is
    equivalent to the one it was made from.

    Args:
        a: one model.
        b: the other.
        inputs: what both take.
        observe: what counts as the output.
        training: compare in training mode.

    Raises:
        InputError: the models' weights do not match in name and shape, or a cannot be audited.
    """
    check_model(a)
    check_model(b)
    first, second = (b, a) if _count(b) > _count(a) else (a, b)
    report = audit(first, inputs, observe=observe, training=training)
    subject = report.subject
    assert subject is not None
    with PROCESS:
        space = space_at_weights(subject)
        mine, theirs = _state(first), _state(second)
        aliases = {alias: entry.name for entry in subject.tracked.entries for alias in entry.aliases}
        _check_same_shapes(mine, theirs, set(aliases))
        differences = {
            name: theirs.get(name, torch.zeros_like(value)) - value
            for name, value in mine.items()
            if value.is_floating_point()
        }
        differences = _means_as_shifts(first, mine, differences, training)
        moved = max((float(each.abs().max()) for each in differences.values() if each.numel()), default=0.0)
        rest = differences | _remaining(space, subject.tracked, differences)
    name = max(rest, key=lambda each: float(rest[each].abs().max()) / _bound(first, mine, each, aliases))
    left, bound = float(rest[name].abs().max()), _bound(first, mine, name, aliases)
    return Equivalence(equivalent=left <= bound, difference=left, parameter=name, bound=bound, moved=moved)


def _means_as_shifts(
    model: nn.Module, state: dict[str, Tensor], differences: dict[str, Tensor], training: bool
) -> dict[str, Tensor]:
    """Differences of running means, as the differences of the shifts that do the same: γ(x - μ)/σ + β. In training mode they
    have no effect at all."""
    found = dict(differences)
    for name, module in model.named_modules():
        if not isinstance(module, _BatchNorm) or module.running_mean is None or module.running_var is None:
            continue
        by = found.pop(f"{name}.running_mean")
        if not training and f"{name}.bias" in found:
            scale = state[f"{name}.weight"] / (state[f"{name}.running_var"] + module.eps).sqrt()
            found[f"{name}.bias"] = found[f"{name}.bias"] - scale * by
        elif not training:
            found[f"{name}.running_mean"] = by
    return found


def _remaining(space: Space, tracked: Tracked, differences: dict[str, Tensor]) -> dict[str, Tensor]:
    own = {entry.name: differences[entry.name] for entry in tracked.entries if entry.coordinates == "entries"}
    nearest = space.project(own)
    return {name: value - nearest[name] if name in nearest else value for name, value in own.items()}


def _bound(model: nn.Module, state: dict[str, Tensor], name: str, aliases: dict[str, str]) -> float:
    own = model.state_dict()[name].dtype
    # What folds into a bias is a product with other biases, so it is as exact as the largest of them.
    peers = [state[each] for each in aliases if each in state] if name in aliases else [state[name]]
    largest = max((float(each.abs().max()) for each in peers if each.numel()), default=1.0)
    return _STORED * torch.finfo(own).eps * max(largest, 1.0)


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: value.double() if value.is_floating_point() else value
        for name, value in copy_of(model, None).state_dict().items()
    }


def _check_same_shapes(mine: dict[str, Tensor], theirs: dict[str, Tensor], tracked: set[str]) -> None:
    unmatched = [name for name in mine.keys() ^ theirs.keys() if name not in tracked]
    unequal = [name for name in mine.keys() & theirs.keys() if mine[name].shape != theirs[name].shape]
    if unmatched or unequal:
        some = ", ".join(sorted([*unmatched, *unequal])[:5])
        raise InputError(
            f"two models are compared parameter by parameter, and these do not match in name and shape: {some}."
        )


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
