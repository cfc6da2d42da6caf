"""Removal of a model's redundant and foldable parameters."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from addnorm.redundancy.execution.copies import PROCESS_LOCK
from addnorm.redundancy.rewriting.audited_model import AuditedModel
from addnorm.redundancy.rewriting.certificate import Certificate, certify, is_exact
from addnorm.redundancy.rewriting.removal import remove
from addnorm.redundancy.rewriting.removal_plan import RemovalPlan, plan_removals
from addnorm.redundancy.rewriting.rewritten_model import Rewrite
from addnorm.redundancy.rewriting.running_means import shifts_after_batch_norm, with_running_means
from addnorm.redundancy.verdict.finding import Finding


def strip(
    subject: AuditedModel,
    findings: Sequence[Finding],
    *,
    prefer: Sequence[str],
    max_amplification: float,
    keep_float32_biases: bool,
) -> tuple[nn.Module, Certificate]:
    """Plan the removals, rewrite the model, and certify the result; see `Audit.strip`."""
    subject.check_unchanged()
    with PROCESS_LOCK:
        plan = plan_removals(
            subject.model, subject.null_space, findings, prefer=prefer, max_amplification=max_amplification
        )
        rewrite, moved_means = _planned_rewrite(subject, plan)
        rewrite, set_to_none, zeroed = _without_removed(subject, rewrite, plan.removed)
        original = dict(subject.model.named_parameters(remove_duplicate=False))
        changed = [
            name
            for name, value in rewrite.values.items()
            if name in plan.values
            and name not in plan.removed
            and not torch.equal(value, original[name].detach().to("cpu", torch.float64))
        ]
        return certify(
            subject,
            replace(rewrite, float32=keep_float32_biases),
            removed=set_to_none,
            zeroed=zeroed,
            changed=[*changed, *moved_means],
            reduced=plan.reduced,
            refused=plan.refused,
        )


def _planned_rewrite(subject: AuditedModel, plan: RemovalPlan) -> tuple[Rewrite, list[str]]:
    """The rewrite with the planned values, and the names of the running means that moved."""
    plain = Rewrite(original=subject.model, values=plan.values)
    if subject.training:
        return with_running_means(plain, subject.inputs) if plan.removed else (plain, [])
    # A norm's shift that is removed itself stays zero: what it absorbed before has been passed on with it.
    shifts = {
        name: shift
        for name, shift in shifts_after_batch_norm(subject.model, plan.folded).items()
        if name not in plan.removed
    }
    if not shifts:
        return plain, []
    original = dict(subject.model.named_parameters(remove_duplicate=False))
    values = {
        name: _without(value, shifts[name], original[name]) if name in shifts else value
        for name, value in plan.values.items()
    }
    rewrite, moved = with_running_means(Rewrite(original=subject.model, values=values), subject.inputs)
    # The better place is taken only if it computes the same: the running mean of a norm with other inputs does not.
    return (rewrite, moved) if moved and is_exact(subject, rewrite) else (plain, [])


def _without(value: Tensor, shift: Tensor, original: Tensor) -> Tensor:
    """A value minus a shift; bit for bit the original one if nothing else had changed it."""
    before = original.detach().to("cpu", torch.float64)
    # a + b - b is not a in floating point. A number that nothing else changed has to stay what it was, or equivalence
    # would list it.
    rest = value - shift
    return before if torch.allclose(rest, before, rtol=1e-12, atol=1e-12) else rest


def _without_removed(
    subject: AuditedModel, rewrite: Rewrite, removed: Sequence[str]
) -> tuple[Rewrite, tuple[str, ...], tuple[str, ...]]:
    """The rewrite without the removed parameters, and the names of those set to None and of those set to zeros."""
    aliases = {entry.name: entry.aliases for entry in subject.tracked.entries}
    set_to_none, zeroed = remove(rewrite.exact(), removed, aliases, subject.inputs)
    without = replace(
        rewrite, removed=[aliases[name] for name in set_to_none], zeroed=[aliases[name] for name in zeroed]
    )
    return without, set_to_none, zeroed
