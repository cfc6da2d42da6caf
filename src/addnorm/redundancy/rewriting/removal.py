"""Taking a parameter out of a model: absent where its class allows that, zeros that no longer train elsewhere."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from addnorm.redundancy.execution.copies import call
from addnorm.redundancy.execution.float64 import Lift
from addnorm.redundancy.execution.fresh_inputs import cast
from addnorm.redundancy.execution.inputs import Inputs

_READERS: tuple[type[nn.Module], ...] = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
"""Classes whose fast paths read the biases of the modules inside them as tensors, in some modes and not in others."""


def remove(
    exact: nn.Module, names: Sequence[str], aliases: Mapping[str, Sequence[str]], given: Inputs
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Take parameters, which are zero already, out of a model in place.

    A parameter is set to None, as `bias=False` would have left it, and the model is run: where its class needs the numbers (it
    raises), it gets zeros instead.

    Args:
        exact: a copy in float64.
        names: the parameters.
        aliases: all names of each.
        given: inputs that the model takes.

    Returns:
        Names that are gone, and names that are zeros now.
    """
    gone: list[str] = []
    zeros: list[str] = []
    inputs = cast(given, torch.float64)
    training = exact.training
    exact.eval()  # batch statistics would change the running ones
    refuse: set[tuple[type[nn.Module], str]] = set()
    for name in names:
        owners = [
            (exact.get_submodule(path), leaf) for path, _, leaf in (each.rpartition(".") for each in aliases[name])
        ]
        kinds = {(type(owner), leaf) for owner, leaf in owners}
        if kinds & refuse or _is_read_elsewhere(exact, aliases[name]):
            zeros.append(name)
            continue
        held = [owner._parameters[leaf] for owner, leaf in owners]
        take_out(exact, aliases[name])
        try:
            with torch.no_grad(), Lift():
                call(exact, inputs)
            gone.append(name)
        except (
            RuntimeError,
            TypeError,
            AttributeError,
            ValueError,
        ):  # its class reads it without asking whether it is there
            for (owner, leaf), parameter in zip(owners, held, strict=True):
                owner._parameters[leaf] = parameter
            refuse |= kinds
            zeros.append(name)
    for name in zeros:
        make_zeros(exact, aliases[name])
    exact.train(training)
    return tuple(gone), tuple(zeros)


def take_out(model: nn.Module, names: Sequence[str]) -> None:
    """Set a parameter to None under all its names."""
    for name in names:
        path, _, leaf = name.rpartition(".")
        model.get_submodule(path).register_parameter(leaf, None)


def make_zeros(model: nn.Module, names: Sequence[str]) -> None:
    """Make a parameter, under all its names, a buffer of zeros; in a recurrent module, whose kernels take a flat list of its
    parameters, a parameter that no longer requires a gradient."""
    for name in names:
        path, _, leaf = name.rpartition(".")
        owner = model.get_submodule(path)
        held = owner._parameters[leaf]
        if isinstance(owner, nn.RNNBase):
            if held is not None:
                held.requires_grad_(False)
            continue
        if held is not None:
            del owner._parameters[leaf]
            owner.register_buffer(leaf, torch.zeros_like(held.detach()))


def _is_read_elsewhere(model: nn.Module, names: Sequence[str]) -> bool:
    for name in names:
        path = name.rpartition(".")[0]
        while True:
            if isinstance(model.get_submodule(path), (*_READERS, nn.RNNBase)):
                return True
            if not path:
                break
            path = path.rpartition(".")[0]
    return False
