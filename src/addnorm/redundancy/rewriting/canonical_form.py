"""The canonical form: one representative of all models that compute the same function."""

import torch
from torch import Tensor, nn

from addnorm.errors import JobError
from addnorm.redundancy.execution.copies import PROCESS_LOCK
from addnorm.redundancy.execution.tracked_parameters import TrackedParameters
from addnorm.redundancy.rewriting.audited_model import AuditedModel
from addnorm.redundancy.rewriting.certificate import certify
from addnorm.redundancy.rewriting.rewritten_model import Rewrite
from addnorm.redundancy.rewriting.running_means import with_running_means

_ROUNDING_UNITS = 2**4
"""Units in the last place of the largest entry up to which a projected entry is set to zero: the projection adds a few
products and rounds the sum once."""


def canonicalize(subject: AuditedModel) -> nn.Module:
    """Subtract from the tracked parameters their orthogonal projection on the null space; see `Audit.canonicalize`."""
    subject.check_unchanged()
    with PROCESS_LOCK:
        values = _values(subject.model, subject.tracked)
        projection = subject.null_space.project(values)
        canonical = {name: _difference(values[name], change) for name, change in projection.items()}
        rewrite, moved = Rewrite(original=subject.model, values=canonical), list[str]()
        if subject.training:
            rewrite, moved = with_running_means(rewrite, subject.inputs)
        rewritten, certificate = certify(
            subject, rewrite, removed=(), zeroed=(), changed=(*projection, *moved), reduced=(), refused=()
        )
    if not certificate.passed:
        # Unlike `strip`, which hands out a failed certificate, there is nothing to choose here: the projection is the
        # canonical form or it is wrong.
        worst = next(each for each in certificate.compared if not each.passed)
        raise JobError(
            f"expected the canonical form to differ by at most {worst.bound:.1e} in {worst.dtype}, which rounding explains, "
            f"got {worst.difference:.1e}."
        )
    return rewritten


def _difference(value: Tensor, projection: Tensor) -> Tensor:
    """The difference, with rounding errors set to zero: entries of redundant parameters become exactly zero."""
    rest = value - projection
    tolerance = _ROUNDING_UNITS * torch.finfo(torch.float64).eps * value.abs().max()
    return torch.where(rest.abs() <= tolerance, 0.0, rest)


def _values(model: nn.Module, tracked: TrackedParameters) -> dict[str, Tensor]:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {
        entry.name: parameters[entry.name].detach().to("cpu", torch.float64)
        for entry in tracked.entries
        if entry.coordinates == "entries"
    }
