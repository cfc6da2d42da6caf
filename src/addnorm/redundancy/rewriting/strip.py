"""Rewriting a model without the parameters that cannot matter."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from addnorm.errors import InputError
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.copies import PROCESS, copy_of
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.finding import Finding
from addnorm.redundancy.graph.joint_space import Space
from addnorm.redundancy.numeric.judgement import COUNTED_ALONE, count_null
from addnorm.redundancy.numeric.probe import Probe
from addnorm.redundancy.rewriting.certificate import Certificate, compare_all, is_exact
from addnorm.redundancy.rewriting.plan import Plan, plan
from addnorm.redundancy.rewriting.removal import remove
from addnorm.redundancy.rewriting.rewritten_model import Rewrite
from addnorm.redundancy.rewriting.running_means import before_batch_norm, running_means
from addnorm.redundancy.subject import Subject


def strip(
    subject: Subject, findings: Sequence[Finding], *, prefer: Sequence[str], max_amplification: float
) -> tuple[nn.Module, Certificate]:
    """See `Audit.strip`."""
    subject.check_unchanged()
    with PROCESS:
        space = space_at_weights(subject)
        planned = plan(subject.model, space, findings, prefer=prefer, max_amplification=max_amplification)
        rewrite, moved = _rewrite(subject, planned)
        rewrite, gone, zeros = _without_removed(subject, rewrite, planned.removed)
        own = dict(subject.model.named_parameters(remove_duplicate=False))
        changed = [
            name
            for name, value in rewrite.values.items()
            if name in planned.values
            and name not in planned.removed
            and not torch.equal(value, own[name].detach().to("cpu", torch.float64))
        ]
        return certify(
            subject,
            rewrite,
            removed=gone,
            zeroed=zeros,
            changed=[*changed, *moved],
            reduced=planned.reduced,
            refused=planned.refused,
        )


def _rewrite(subject: Subject, planned: Plan) -> tuple[Rewrite, list[str]]:
    """What the model becomes, and the running means that moved."""
    plain = Rewrite(original=subject.model, values=planned.values)
    shifts = before_batch_norm(subject.model, planned.folded)
    if subject.training:
        return with_running_means(plain, subject.inputs) if planned.removed else (plain, [])
    if not shifts:
        return plain, []
    own = dict(subject.model.named_parameters(remove_duplicate=False))
    values = {
        name: _without(value, shifts[name], own[name]) if name in shifts else value
        for name, value in planned.values.items()
    }
    moving, moved = with_running_means(Rewrite(original=subject.model, values=values), subject.inputs)
    return (moving, moved) if moved and is_exact(subject, moving) else (plain, [])


def with_running_means(rewrite: Rewrite, given: Inputs) -> tuple[Rewrite, list[str]]:
    """The rewrite with its running means moved by what their norms' inputs lost, and the names of those that moved."""
    means = running_means(rewrite, given)
    return replace(rewrite, values={**rewrite.values, **means}), list(means)


def _without(value: Tensor, shift: Tensor, own: Tensor) -> Tensor:
    """A value with a change taken back; exactly the one there was if nothing else had changed it."""
    before = own.detach().to("cpu", torch.float64)
    rest = value - shift
    return before if torch.allclose(rest, before, rtol=1e-12, atol=1e-12) else rest


def _without_removed(
    subject: Subject, rewrite: Rewrite, removed: Sequence[str]
) -> tuple[Rewrite, tuple[str, ...], tuple[str, ...]]:
    """The rewrite without the removed parameters, and the names of those that are gone and those that are zeros."""
    aliases = {entry.name: entry.aliases for entry in subject.tracked.entries}
    gone, zeros = remove(rewrite.exact(), removed, aliases, subject.inputs)
    made = replace(rewrite, gone=[aliases[name] for name in gone], zeros=[aliases[name] for name in zeros])
    return made, gone, zeros


def certify(
    subject: Subject,
    rewrite: Rewrite,
    *,
    removed: Sequence[str],
    zeroed: Sequence[str],
    changed: Sequence[str],
    reduced: Sequence[str],
    refused: Sequence[str],
) -> tuple[nn.Module, Certificate]:
    """The rewritten model at the original's precision, and its comparison with the original."""
    made = rewrite.rounded()
    compared, lengths, drawn = compare_all(subject, rewrite, made, [False, True] if subject.training else [False])
    certificate = Certificate(
        removed=tuple(removed),
        zeroed=tuple(zeroed),
        changed=tuple(changed),
        reduced=tuple(reduced),
        refused=tuple(refused),
        scalars=sum(subject.tracked[name].size for name in (*removed, *zeroed)),
        compared=compared,
        lengths=lengths,
        fresh=drawn,
    )
    return made, certificate


def space_at_weights(subject: Subject) -> Space:
    """The null space at the model's own weights.

    Raises:
        InputError: the model does not export and is too large to count numerically.
    """
    if subject.static is not None:
        return subject.static.at_weights
    if subject.tracked.size > COUNTED_ALONE:
        raise InputError(
            f"a rewrite needs the whole null space, which the numerical method counts up to {COUNTED_ALONE} scalars; this "
            f"model has {subject.tracked.size} and does not export. Audit a smaller configuration of the same class."
        )
    copied = copy_of(subject.model, torch.float64).train(subject.training)
    cases = Cases.of(copied, subject.inputs, subject.observe)
    judged = count_null(Probe(copied, subject.tracked, subject.observe), cases, None)
    assert judged.space is not None
    return judged.space
