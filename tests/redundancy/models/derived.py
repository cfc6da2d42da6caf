"""Generic weights, and the comparison of an audit with degrees of freedom derived by hand.

The derivations use one notation. d: width, f: feed-forward width, h: heads, L: layers, V: vocabulary. A move of all
biases leaves the model alone exactly if every place that must not see it does not:

    query          W_q s + db_q = 0         s: the shift of what enters, the same at every position
    key            free, unless rotary positions (rotated entries: W_k s + db_k = 0) or a norm after it stand in between
    value          t = W_v s + db_v passes through the softmax, whose rows sum to one: the branch shifts by W_o t + db_o
    non-linearity  W s + db = 0
    layer norm     the shift must be c * ones: d - 1 conditions; what leaves is shifted by the norm's own bias alone
    RMS norm       the shift must be 0
    logits         W s + db = 0; without a bias and with V >= d this is s = 0

Matrices are random, so square ones are invertible and no vector lies in a proper subspace by accident.
"""

from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

import addnorm

# Models of every file have these sizes, and Transformers' classes this vocabulary.
D, F, L, V = 8, 12, 2, 40

Dofs = tuple[int, int, int]
"""Size, redundant and absorbable degrees of freedom of one parameter."""


def generic(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model in evaluation mode with no special weights: no zero biases, no gains that are all one."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=draw)
            if parameter.ndim < 2:
                gain = 1.0 if name.endswith("weight") else 0.0
                parameter.copy_(gain + 0.3 * noise)
            else:
                parameter.copy_(noise / parameter[0].numel() ** 0.5)
    return model.eval()


def tokens(vocab: int = 40, *, batch: int = 3, seq: int = 6, least: int = 5, seed: int = 1) -> torch.Tensor:
    """Random ids in [least, vocab): none of the special ones, which some models mask."""
    return torch.randint(least, vocab, (batch, seq), generator=torch.Generator().manual_seed(seed))


def noise(*shape: int, seed: int = 2) -> torch.Tensor:
    """Standard normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def word(size: int, redundant: int, absorbable: int) -> str:
    """The verdict that the three counts stand for."""
    if redundant == size:
        return "redundant"
    if redundant:
        return "partly redundant"
    return "foldable" if absorbable else "effective"


def assert_derived(model: nn.Module, inputs: Any, joint: int, rows: dict[str, Dofs], **options: Any) -> None:
    """Audit the model and compare everything with the derivation.

    Args:
        joint: dimension of the joint null space.
        rows: what is derived per parameter, by patterns of names (`*` and `?`); each parameter matches exactly one.
        options: of `addnorm.audit`.
    """
    audit = addnorm.audit(model, inputs, **options)
    wrong = [] if audit.joint_null == joint else [f"joint null: derived {joint}, audit {audit.joint_null}"]
    for finding in audit.findings:
        patterns = [pattern for pattern in rows if fnmatchcase(finding.parameter, pattern)]
        assert len(patterns) == 1, f"{finding.parameter} matches {patterns}"
        derived = rows[patterns[0]]
        got = (finding.size, finding.redundant_dof, finding.absorbable_dof)
        if got != derived or finding.verdict != word(*derived):
            wrong.append(f"{finding.parameter}: derived {derived} {word(*derived)}, audit {got} {finding.verdict}")
    unused = [p for p in rows if not any(fnmatchcase(finding.parameter, p) for finding in audit.findings)]
    wrong += [f"{pattern}: no such finding" for pattern in unused]
    wrong += list(audit.disagreements)
    assert not wrong, "\n".join(wrong)
    assert audit.size == sum(finding.size for finding in audit.findings)
