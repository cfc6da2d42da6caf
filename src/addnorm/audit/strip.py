"""Rewriting a model without the parameters that cannot matter."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from addnorm.audit.cases import Cases
from addnorm.audit.certificate import Certificate, Pair, compare_all
from addnorm.audit.copying import PROCESS, copy_of
from addnorm.audit.finding import Finding
from addnorm.audit.judgement import COUNTED_ALONE, count_null
from addnorm.audit.plan import Plan, plan
from addnorm.audit.probe import Probe
from addnorm.audit.removal import make_zeros, remove, take_out
from addnorm.audit.running import before_batch_norm, keep_running_means
from addnorm.audit.space import Space
from addnorm.audit.subject import Subject
from addnorm.errors import InputError


def strip(
    subject: Subject, findings: Sequence[Finding], *, prefer: Sequence[str], max_amplification: float
) -> tuple[nn.Module, Certificate]:
    """See `Audit.strip`."""
    subject.check_unchanged()
    with PROCESS:
        space = space_at_weights(subject)
        planned = plan(subject.model, space, findings, prefer=prefer, max_amplification=max_amplification)
        exact, moved = _exact(subject, planned)
        made, gone, zeros = _at_own_precision(subject, exact, planned.removed)
        own = dict(copy_of(subject.model, torch.float64).named_parameters(remove_duplicate=False))
        now = dict(exact.named_parameters(remove_duplicate=False))
        kept = [name for name in planned.values if name not in planned.removed]
        changed = [name for name in kept if not torch.equal(own[name], now[name])]
        return made, certify(
            subject,
            made,
            exact,
            removed=gone,
            zeroed=zeros,
            changed=[*changed, *moved],
            reduced=planned.reduced,
            refused=planned.refused,
        )


def _exact(subject: Subject, planned: Plan) -> tuple[nn.Module, list[str]]:
    """The rewrite in float64, and the running means that moved."""
    plain = with_values(subject, planned.values)
    shifts = before_batch_norm(subject.model, planned.folded)
    if subject.training:
        return plain, keep_running_means(subject.model, plain, subject.inputs) if planned.removed else []
    if not shifts:
        return plain, []
    own = dict(subject.model.named_parameters(remove_duplicate=False))
    values = {
        name: _without(value, shifts[name], own[name]) if name in shifts else value
        for name, value in planned.values.items()
    }
    moving = with_values(subject, values)
    moved = keep_running_means(subject.model, moving, subject.inputs)
    compared, _, _ = compare_all(
        Pair(original=subject.model, rewritten=moving, exact=moving), subject, [False], formats=("float64",)
    )
    return (moving, moved) if moved and compared[0].passed else (plain, [])


def _without(value: Tensor, shift: Tensor, own: Tensor) -> Tensor:
    """A value with a change taken back; exactly the one there was if nothing else had changed it."""
    before = own.detach().to("cpu", torch.float64)
    rest = value - shift
    return before if torch.allclose(rest, before, rtol=1e-12, atol=1e-12) else rest


@torch.no_grad()
def with_values(subject: Subject, values: Mapping[str, Tensor]) -> nn.Module:
    """A copy in float64 with some parameters set."""
    exact = copy_of(subject.model, torch.float64).train(subject.model.training)
    own = dict(exact.named_parameters(remove_duplicate=False))
    for name, value in values.items():
        own[name].copy_(value)
    return exact


@torch.no_grad()
def _at_own_precision(
    subject: Subject, exact: nn.Module, removed: Sequence[str]
) -> tuple[nn.Module, tuple[str, ...], tuple[str, ...]]:
    """The rewrite like the model given, and both without the removed parameters."""
    made = rounded(subject.model, exact)
    aliases = {entry.name: entry.aliases for entry in subject.tracked.entries}
    gone, zeros = remove(exact, removed, aliases, subject.inputs)
    for name in gone:
        take_out(made, aliases[name])
    for name in zeros:
        make_zeros(made, aliases[name])
    return made, gone, zeros


@torch.no_grad()
def rounded(model: nn.Module, exact: nn.Module) -> nn.Module:
    """A copy of a model, on its device and in its precision and mode, with another's numbers."""
    device = next(model.parameters()).device
    made = copy_of(model, None).to(device).train(model.training)
    theirs = dict(exact.named_parameters()) | dict(exact.named_buffers())
    for name, tensor in [*made.named_parameters(), *made.named_buffers()]:
        tensor.copy_(theirs[name])
    return made


def certify(
    subject: Subject,
    made: nn.Module,
    exact: nn.Module,
    *,
    removed: Sequence[str],
    zeroed: Sequence[str],
    changed: Sequence[str],
    reduced: Sequence[str],
    refused: Sequence[str],
) -> Certificate:
    """Compare a rewrite with the model."""
    pair = Pair(original=subject.model, rewritten=made, exact=exact)
    compared, lengths, drawn = compare_all(pair, subject, [False, True] if subject.training else [False])
    return Certificate(
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
