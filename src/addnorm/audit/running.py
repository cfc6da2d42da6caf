"""Batch norm's running means, which remember the biases before them."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from addnorm.audit.copying import call, copy_of
from addnorm.audit.fresh import cast
from addnorm.audit.inputs import Inputs
from addnorm.audit.lift import Lift
from addnorm.audit.space import Delta


@torch.no_grad()
def keep_running_means(original: nn.Module, exact: nn.Module, given: Inputs) -> list[str]:
    """Move the running means of a rewritten model, in place, by what its batch norms' inputs lost.

    With batch statistics a bias before a batch norm cannot matter, and its removal changes nothing; but the running mean holds
    it, and without it evaluation would see data shifted by that bias. So both models run once in evaluation mode, and where the
    input of a batch norm is shifted by one number per channel, its running mean follows.

    Args:
        original: the model as given.
        exact: its rewrite in float64.
        given: inputs that it takes.

    Returns:
        Names of the running means that moved.
    """
    inputs = cast(given, torch.float64)
    before: dict[str, list[Tensor]] = {}
    moved: list[str] = []
    reference = copy_of(original, torch.float64).eval()
    trial = copy_of(exact, torch.float64).eval()
    means = dict(exact.named_buffers())
    handles = [
        module.register_forward_pre_hook(lambda _, args, name=name: before.setdefault(name, []).append(args[0].clone()))
        for name, module in _batch_norms(reference)
    ]
    with Lift():
        call(reference, inputs)
    for handle in handles:
        handle.remove()

    def follow(name: str, module: _BatchNorm, arrived: Tensor) -> None:
        difference = (arrived - before[name][0]).transpose(0, 1).flatten(1)
        shift = difference.mean(1)
        near = float((difference - shift[:, None]).abs().max()) <= 1e-9 * max(float(before[name][0].abs().max()), 1.0)
        if near and float(shift.abs().max()) > 0 and module.running_mean is not None:
            module.running_mean += shift
            means[f"{name}.running_mean"].copy_(module.running_mean)
            moved.append(f"{name}.running_mean")

    for name, module in _batch_norms(trial):
        module.register_forward_pre_hook(
            lambda module, args, name=name: follow(name, module, args[0]) if len(before.get(name, [])) == 1 else None
        )
    with Lift():
        call(trial, inputs)
    return moved


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
