"""Batch norm's running means, which contain the biases before the norm."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from addnorm.redundancy.execution.copies import call, copy_of
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.fresh_inputs import cast
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.graph.null_space import Delta
from addnorm.redundancy.rewriting.rewritten_model import Rewrite


def with_running_means(rewrite: Rewrite, inputs: Inputs) -> tuple[Rewrite, list[str]]:
    """Move a rewrite's running means by the shifts of their norms' inputs; also return the names of those that
    moved."""
    means = running_means(rewrite, inputs)
    return replace(rewrite, values={**rewrite.values, **means}), list(means)


@torch.no_grad()
def running_means(rewrite: Rewrite, inputs: Inputs) -> dict[str, Tensor]:
    """Compute the running means of a rewritten model.

    With batch statistics a bias before a batch norm is redundant, and its removal changes nothing. But the running mean
    contains the bias, so that after its removal evaluation would shift by it. Both models are therefore called once in
    evaluation mode; where the input of a batch norm is shifted by one number per channel, its running mean is shifted
    too.

    Args:
        rewrite: the original model and its changes.
        inputs: inputs of the model.

    Returns:
        The running means that move, by the buffer's name, in float64.
    """
    if not _batch_norms(rewrite.original):
        return {}
    float64_inputs = cast(inputs, torch.float64)
    before: dict[str, list[Tensor]] = {}
    moved: dict[str, Tensor] = {}

    def record(name: str, module: _BatchNorm, value: Tensor) -> None:
        before.setdefault(name, []).append(value.clone())

    def shift_mean(name: str, module: _BatchNorm, value: Tensor) -> None:
        # A norm that is called twice has two inputs and one mean.
        if len(before.get(name, [])) != 1:
            return
        difference = (value - before[name][0]).transpose(0, 1).flatten(1)
        shift = difference.mean(1)
        # One number per channel at every place, or the mean does not describe what changed.
        near = float((difference - shift[:, None]).abs().max()) <= 1e-9 * max(float(before[name][0].abs().max()), 1.0)
        if near and float(shift.abs().max()) > 0 and module.running_mean is not None:
            # At once, while the call goes on: what reaches later norms is then what it was, so that no removal is
            # absorbed by two of them.
            module.running_mean += shift
            moved[f"{name}.running_mean"] = module.running_mean.clone()

    _call_with_hooks(copy_of(rewrite.original, torch.float64).eval(), float64_inputs, record)
    _call_with_hooks(rewrite.exact().eval(), float64_inputs, shift_mean)
    return moved


def _call_with_hooks(model: nn.Module, inputs: Inputs, hook: Callable[[str, _BatchNorm, Tensor], None]) -> None:
    """Call a copy once and pass every batch norm's input to `hook`."""
    for name, module in _batch_norms(model):
        module.register_forward_pre_hook(lambda module, args, name=name: hook(name, module, args[0]))
    with Float64Mode():
        call(model, inputs)


def shifts_after_batch_norm(model: nn.Module, folded: Mapping[str, Delta]) -> dict[str, Tensor]:
    """Sum the changes of batch norms' shifts by removed biases that fold into nothing else.

    In evaluation mode such a bias may directly precede the norm. Then the running mean is the better place for it, also
    for further training, where the norm's batch statistics cancel what its shift would keep.
    """
    shifts = {f"{name}.bias" for name, _ in _batch_norms(model)}
    total: dict[str, Tensor] = {}
    for moved in folded.values():
        if moved and moved.keys() <= shifts:
            for name, change in moved.items():
                total[name] = total.get(name, torch.zeros_like(change)) + change
    return total


def _batch_norms(model: nn.Module) -> list[tuple[str, _BatchNorm]]:
    return [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    ]
