"""Absorbing parameters stored in float32, in a model of lower precision.

A fold adds several biases to one, which storage in bfloat16 or float16 would round. Here the sum stays in float32, and
the module that owns it computes in float32: its arguments and its own parameters are converted when it is called, and its
result is converted back. Names in the state dict stay. A loader that converts every parameter to one format rounds the
sums; one that loads in float32, or that keeps each parameter's stored format, does not.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from addnorm.redundancy.execution.copies import call, copy_of
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.rewriting.removal import is_read_elsewhere

_LOWER = (torch.bfloat16, torch.float16)


class Float32Arithmetic(nn.Module):
    """Base of a module class that computes in float32 whatever the formats of its parameters and arguments."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the class's own forward pass in float32, and return its result in the arguments' format."""
        given = [
            leaf.dtype for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.dtype in _LOWER
        ]
        if not given:
            return super().forward(*args, **kwargs)
        # The raised parameters replace the stored ones for this call only: names, state dict and optimizers keep
        # theirs.
        own = self._parameters
        args, kwargs = tree_map(_raised, (args, kwargs))
        self.__dict__["_parameters"] = {name: _raised(each) for name, each in own.items()}
        try:
            result = super().forward(*args, **kwargs)
        finally:
            self.__dict__["_parameters"] = own
        return tree_map(lambda leaf: leaf.to(given[0]) if _is(leaf, (torch.float32,)) else leaf, result)


def keep_in_float32(model: nn.Module, values: Mapping[str, Tensor], inputs: Inputs) -> tuple[str, ...]:
    """Store parameters in float32 where the model still runs, in place.

    Parameters that a fused kernel of an enclosing module reads stay as they are. A module that has modules inside does not
    compute in float32, because these would receive float32 too; a parameter that it shares with one of them may.

    Args:
        model: a copy on the CPU.
        values: new numbers of parameters, by any name.
        inputs: inputs of the model.

    Returns:
        Names of the parameters that are stored in float32.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    kept = []
    for name, value in values.items():
        names = [each for each, other in parameters.items() if other is parameters[name]]
        owners = _owners(model, names)
        if (
            parameters[name].dtype not in _LOWER
            or is_read_elsewhere(model, names)
            or not any(_is_leaf(owner) for owner, _ in owners)
        ):
            continue
        classes = [type(owner) for owner, _ in owners]
        store_in_float32(model, names, value)
        if _runs(model, inputs):
            kept.append(name)
            continue
        for (owner, leaf), kind in zip(owners, classes, strict=True):
            owner._parameters[leaf] = parameters[name]
            # Undone as it was done: by class, so that the module, its hooks and its place in the model stay the same
            # object.
            owner.__class__ = kind
    return tuple(kept)


def store_in_float32(model: nn.Module, names: Sequence[str], value: Tensor) -> None:
    """Store a parameter in float32 under all its names, in modules that then compute in float32."""
    owners = _owners(model, names)
    before = owners[0][0]._parameters[owners[0][1]]
    assert before is not None
    raised = nn.Parameter(value.reshape(before.shape).to(before.device, torch.float32), before.requires_grad)
    for owner, leaf in owners:
        owner._parameters[leaf] = raised
        if _is_leaf(owner) and not isinstance(owner, Float32Arithmetic):
            owner.__class__ = _in_float32(type(owner))


def _is_leaf(module: nn.Module) -> bool:
    return next(module.children(), None) is None


def _owners(model: nn.Module, names: Sequence[str]) -> list[tuple[nn.Module, str]]:
    return [(model.get_submodule(path), leaf) for path, _, leaf in (each.rpartition(".") for each in names)]


def _in_float32(kind: type[nn.Module]) -> type[nn.Module]:
    return type(kind.__name__, (Float32Arithmetic, kind), {"__module__": kind.__module__})


def _runs(model: nn.Module, inputs: Inputs) -> bool:
    """True if the model runs in its own format."""
    spare = copy_of(model, None).eval()
    lower = next(each.dtype for each in model.parameters() if each.dtype in _LOWER)
    cast = tree_map(lambda leaf: leaf.to(lower) if _is(leaf, (torch.float32, torch.float64)) else leaf, inputs.kwargs)
    args = tree_map(lambda leaf: leaf.to(lower) if _is(leaf, (torch.float32, torch.float64)) else leaf, inputs.args)
    try:
        with torch.no_grad():
            call(spare, Inputs(args=args, kwargs=cast))
    # The class computes with the parameter outside of its forward pass; how that fails depends on the class.
    except (RuntimeError, TypeError, AttributeError, ValueError):
        return False
    return True


def _raised(value: Any) -> Any:
    return value.float() if _is(value, _LOWER) else value


def _is(value: Any, formats: tuple[torch.dtype, ...]) -> bool:
    return isinstance(value, Tensor) and value.dtype in formats
