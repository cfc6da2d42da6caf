"""Lint: one line per bias that adds nothing to what a model can compute, with a suggestion."""

from typing import Any

from torch import nn

from addnorm.redundancy.analysis import audit
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.rewriting.folds import AMPLIFIED
from addnorm.redundancy.rewriting.removal_plan import plan_removals
from addnorm.redundancy.verdict.finding import by_name


def lint(model: nn.Module, inputs: Any, *, observe: Observe = "logits", training: bool = False) -> list[str]:
    """List the biases of a model that can be left out: redundant ones, and those that other parameters absorb
    completely.

    Of several parameters that can absorb each other one is kept. The list concerns what a model can compute; training
    without these biases may differ.

    Example:

        >>> import torch, addnorm
        >>> block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 8))
        >>> for line in addnorm.lint(block, torch.randn(2, 5, 8)):
        ...     print(line.partition(":")[0])
        1.bias

    Args:
        model: any module.
        inputs: its inputs.
        observe: the observed output.
        training: analyse training mode.

    Returns:
        One line per bias; empty if there is none.

    Raises:
        InputError: as for `addnorm.audit`.
    """
    report = audit(model, inputs, observe=observe, training=training)
    subject = report.subject
    assert subject is not None
    if subject.generic_null_space is None:
        return []
    findings = by_name(report.findings)
    plan = plan_removals(model, subject.generic_null_space, report.findings, prefer=(), max_amplification=AMPLIFIED)
    return [
        f"{name}: {findings[name].reason.rstrip('.')}. {_suggestion(model, name, findings[name].size)}"
        for name in plan.removed
    ]


def _suggestion(model: nn.Module, name: str, size: int) -> str:
    owner, _, leaf = name.rpartition(".")
    module = model.get_submodule(owner)
    kind = type(module).__name__
    match module:
        case _ if leaf != "bias" or not type(module).__module__.startswith("torch.nn."):
            return f"Leave {leaf!r} out of {kind}, or keep it at zero and out of the optimizer: {size} numbers less."
        case nn.Linear() if type(module) is nn.Linear:
            return f"Write nn.Linear({module.in_features}, {module.out_features}, bias=False): {size} numbers less."
        case nn.modules.conv._ConvNd():
            sizes = f"{module.in_channels}, {module.out_channels}, {module.kernel_size}"
            return f"Write nn.{kind}({sizes}, …, bias=False): {size} numbers less."
        case nn.LayerNorm():
            return f"Write nn.LayerNorm({list(module.normalized_shape)}, bias=False): {size} numbers less."
        case _:
            return f"Leave {leaf!r} out of {kind}, or keep it at zero and out of the optimizer: {size} numbers less."
