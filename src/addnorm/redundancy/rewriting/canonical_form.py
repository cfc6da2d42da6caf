"""The canonical form: one representative of all models that compute the same function."""

import torch
from torch import Tensor, nn

from addnorm.errors import JobError
from addnorm.redundancy.execution.copies import PROCESS
from addnorm.redundancy.execution.tracked_parameters import Tracked
from addnorm.redundancy.rewriting.rewritten_model import Rewrite
from addnorm.redundancy.rewriting.strip import certify, space_at_weights, with_running_means
from addnorm.redundancy.subject import Subject

_ROUNDING = 2**4
"""Units in the last place of the largest entry up to which a projected entry counts as zero: the projection adds a few
products and rounds the sum once."""


def canonicalize(subject: Subject) -> nn.Module:
    """See `Audit.canonicalize`."""
    subject.check_unchanged()
    with PROCESS:
        values = _values(subject.model, subject.tracked)
        nearest = space_at_weights(subject).project(values)
        less = {name: _less(values[name], change) for name, change in nearest.items()}
        rewrite, moved = Rewrite(original=subject.model, values=less), list[str]()
        if subject.training:
            rewrite, moved = with_running_means(rewrite, subject.inputs)
        made, certificate = certify(
            subject, rewrite, removed=(), zeroed=(), changed=(*nearest, *moved), reduced=(), refused=()
        )
    if not certificate.passed:
        worst = next(each for each in certificate.compared if not each.passed)
        raise JobError(
            f"the canonical form must compute the same; its output differs by {worst.difference:.1e} in {worst.dtype}, where "
            f"rounding explains {worst.bound:.1e}."
        )
    return made


def _less(value: Tensor, nearest: Tensor) -> Tensor:
    """The difference, with what is rounding at zero: redundant parameters end there."""
    rest = value - nearest
    return torch.where(rest.abs() <= _ROUNDING * torch.finfo(torch.float64).eps * value.abs().max(), 0.0, rest)


def _values(model: nn.Module, tracked: Tracked) -> dict[str, Tensor]:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {
        entry.name: parameters[entry.name].detach().to("cpu", torch.float64)
        for entry in tracked.entries
        if entry.coordinates == "entries"
    }
