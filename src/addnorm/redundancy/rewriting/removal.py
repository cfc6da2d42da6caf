"""Removal of a parameter from a module: None where its class allows it, zeros that are not trained elsewhere."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from addnorm.redundancy.execution.copies import call
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.fresh_inputs import cast
from addnorm.redundancy.execution.inputs import Inputs

_FAST_PATHS: tuple[type[nn.Module], ...] = (
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)
"""Classes whose fast paths read the biases of their submodules as tensors, in some modes only."""


def remove(
    exact: nn.Module, names: Sequence[str], aliases: Mapping[str, Sequence[str]], inputs: Inputs
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Remove parameters that are zero already from a model, in place.

    A parameter is set to None, as `bias=False` does, and the model is called. If it raises, its class needs the
    numbers, and the parameter becomes zeros instead.

    Args:
        exact: a copy in float64.
        names: the parameters.
        aliases: all names of each.
        inputs: inputs of the model.

    Returns:
        Names of the parameters set to None, and of those set to zeros.
    """
    absent: list[str] = []
    zeroed: list[str] = []
    float64_inputs = cast(inputs, torch.float64)
    training = exact.training
    exact.eval()  # a call in training mode would change the running statistics
    needing_numbers: set[tuple[type[nn.Module], str]] = set()
    for name in names:
        owners = [
            (exact.get_submodule(path), leaf) for path, _, leaf in (each.rpartition(".") for each in aliases[name])
        ]
        kinds = {(type(owner), leaf) for owner, leaf in owners}
        # A fused kernel reads the bias in some modes only, so that a call in evaluation would prove nothing about it.
        # One refusal of a class holds for all its instances.
        if kinds & needing_numbers or is_read_elsewhere(exact, aliases[name]):
            zeroed.append(name)
            continue
        parameters = [owner._parameters[leaf] for owner, leaf in owners]
        set_to_none(exact, aliases[name])
        try:
            with torch.no_grad(), Float64Mode():
                call(exact, float64_inputs)
            absent.append(name)
        # The class reads the parameter without testing for None; how that fails depends on the class.
        except (RuntimeError, TypeError, AttributeError, ValueError):
            for (owner, leaf), parameter in zip(owners, parameters, strict=True):
                owner._parameters[leaf] = parameter
            needing_numbers |= kinds
            zeroed.append(name)
    for name in zeroed:
        set_to_zeros(exact, aliases[name])
    exact.train(training)
    return tuple(absent), tuple(zeroed)


def set_to_none(model: nn.Module, names: Sequence[str]) -> None:
    """Set a parameter to None under all its names."""
    for name in names:
        path, _, leaf = name.rpartition(".")
        model.get_submodule(path).register_parameter(leaf, None)


def set_to_zeros(model: nn.Module, names: Sequence[str]) -> None:
    """Replace a parameter, under all its names, by a buffer of zeros. In a recurrent module, whose kernels take a flat
    list of parameters, it stays a parameter that requires no gradient."""
    for name in names:
        path, _, leaf = name.rpartition(".")
        owner = model.get_submodule(path)
        parameter = owner._parameters[leaf]
        if isinstance(owner, nn.RNNBase):
            if parameter is not None:
                parameter.requires_grad_(False)
            continue
        if parameter is not None:
            del owner._parameters[leaf]
            # A buffer, so that optimizers do not move it and the file still has the name.
            owner.register_buffer(leaf, torch.zeros_like(parameter.detach()))


def is_read_elsewhere(model: nn.Module, names: Sequence[str]) -> bool:
    """Return True if an enclosing module reads the parameter as a tensor."""
    for name in names:
        path = name.rpartition(".")[0]
        while True:
            if isinstance(model.get_submodule(path), (*_FAST_PATHS, nn.RNNBase)):
                return True
            if not path:
                break
            path = path.rpartition(".")[0]
    return False
