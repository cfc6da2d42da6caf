"""Batch norm's running means, which remember the biases before them."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from addnorm.redundancy.execution.copies import call, copy_of
from addnorm.redundancy.execution.float64 import Lift
from addnorm.redundancy.execution.fresh_inputs import cast
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.graph.joint_space import Delta
from addnorm.redundancy.rewriting.rewritten_model import Rewrite


@torch.no_grad()
def running_means(rewrite: Rewrite, given: Inputs) -> dict[str, Tensor]:
    """The running means of a rewritten model, moved by what its batch norms' inputs lost.

    With batch statistics a bias before a batch norm cannot matter, and its removal changes nothing; but the running mean holds
    it, and without it evaluation would see data shifted by that bias. So both models run once in evaluation mode, and where the
    input of a batch norm is shifted by one number per channel, its running mean follows.

    Args:
        rewrite: the model as given, and what it becomes.
        given: inputs that it takes.

    Returns:
        Those that move, by the buffer's name, in float64.
    """
    if not _batch_norms(rewrite.original):
        return {}
    inputs = cast(given, torch.float64)
    before: dict[str, list[Tensor]] = {}
    moved: dict[str, Tensor] = {}

    def note(name: str, arrived: Tensor) -> None:
        before.setdefault(name, []).append(arrived.clone())

    def follow(name: str, module: _BatchNorm, arrived: Tensor) -> None:
        difference = (arrived - before[name][0]).transpose(0, 1).flatten(1)
        shift = difference.mean(1)
        near = float((difference - shift[:, None]).abs().max()) <= 1e-9 * max(float(before[name][0].abs().max()), 1.0)
        if near and float(shift.abs().max()) > 0 and module.running_mean is not None:
            module.running_mean += shift
            moved[f"{name}.running_mean"] = module.running_mean.clone()

    _run_with(
        copy_of(rewrite.original, torch.float64).eval(), inputs, lambda name, module, arrived: note(name, arrived)
    )
    _run_with(
        rewrite.exact().eval(),
        inputs,
        lambda name, module, arrived: follow(name, module, arrived) if len(before.get(name, [])) == 1 else None,
    )
    return moved


def _run_with(model: nn.Module, inputs: Inputs, seen: Callable[[str, _BatchNorm, Tensor], None]) -> None:
    """Run a copy once; `seen` is told what arrives at every batch norm."""
    for name, module in _batch_norms(model):
        module.register_forward_pre_hook(lambda module, args, name=name: seen(name, module, args[0]))
    with Lift():
        call(model, inputs)


def before_batch_norm(model: nn.Module, folded: Mapping[str, Delta]) -> dict[str, Tensor]:
    """Changes of batch norms' shifts that took over nothing but one removed bias each.

    In evaluation mode such a bias may stand right before the norm, and then its running mean is the better place: that is also
    right once the model trains on, where the norm's batch statistics remove what its shift would keep.
    """
    shifts = {f"{name}.bias" for name, _ in _batch_norms(model)}
    found: dict[str, Tensor] = {}
    for moved in folded.values():
        if moved and moved.keys() <= shifts:
            for name, change in moved.items():
                found[name] = found.get(name, torch.zeros_like(change)) + change
    return found


def _batch_norms(model: nn.Module) -> list[tuple[str, _BatchNorm]]:
    return [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    ]
