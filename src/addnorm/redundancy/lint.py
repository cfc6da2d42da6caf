"""One line per bias that training cannot use, and what to write instead."""

from typing import Any

from torch import nn

from addnorm.redundancy.analysis import audit
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.finding import by_name
from addnorm.redundancy.rewriting.folds import AMPLIFIED
from addnorm.redundancy.rewriting.plan import plan
from addnorm.redundancy.subject import Subject


def lint(model: nn.Module, inputs: Any, *, observe: Observe = "logits", training: bool = False) -> list[str]:
    """Which of a model's biases are wasted: redundant alone, or taken over by others whatever their values.

    Of parameters that can take over for each other one is kept. About what a model can express; how it trains may differ.

    Args:
        model: any module.
        inputs: what it takes.
        observe: what counts as the output.
        training: look at training mode.

    Returns:
        One line per wasted bias; empty where there is none.

    Raises:
        InputError: as for `addnorm.audit`.
    """
    report = audit(model, inputs, observe=observe, training=training)
    subject = report.subject
    assert subject is not None
    if subject.verdicts is None:
        return []
    findings = by_name(report.findings)
    planned = plan(model, subject.verdicts, report.findings, prefer=(), max_amplification=AMPLIFIED)
    return [
        f"{name}: {findings[name].reason.rstrip('.')}. {_instead(model, subject, name, findings[name].size)}"
        for name in planned.removed
    ]


def _instead(model: nn.Module, subject: Subject, name: str, size: int) -> str:
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
