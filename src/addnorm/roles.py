"""Roles of parameters in the modules that own them, which their shapes alone do not determine.

A module declares the roles of its parameters in an attribute of its class, or of its own, which copies of a model keep. A
name is that of a parameter, or of a submodule whose parameters all have the role. A subclass adds to the declarations of its
base classes:

    class PairWeights(nn.Module):
        parameter_roles = {"alpha": "scalar", "mix": "scalar", "out.weight": "head"}

If several modules declare one parameter, the outermost takes precedence, because it determines the use of its submodules.
torch's own modules (linear maps, convolutions, recurrent cells, attention, embeddings, norms) need no declaration.

A parameter without a declaration is never treated as a matrix, whatever its shape: two axes may be a map between activations, a
vector per layer, or a number per bucket and head. Weight decay on matrices therefore excludes it until it is declared.
"""

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Literal, get_args

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from addnorm.errors import InputError, UnknownName, did_you_mean

__all__ = ["MATRIX_ROLES", "ParameterRole", "roles"]

ParameterRole = Literal["embedding", "head", "hidden_matrix", "vector", "scalar", "bias", "table"]
"""Use of a parameter in its module.

`embedding`: a row of the stream's width per token or position. `head`: the matrix that gives the logits.
`hidden_matrix`: any other map between activations, or a stack of such maps along the leading axes. `vector`: acts entry by
entry, as a norm's gain does; also one per layer or head. `scalar`: a learned number, or one per branch, layer or head.
`bias`: added to activations. `table`: numbers that are looked up, for instance by distance.

Example:
    >>> role: ParameterRole = roles(nn.Linear(2, 3))["weight"]
    >>> role
    'hidden_matrix'
"""

MATRIX_ROLES: frozenset[ParameterRole] = frozenset({"embedding", "head", "hidden_matrix"})
"""Roles of the parameters that are matrices; all others act element by element.

Example:
    >>> sorted(MATRIX_ROLES)
    ['embedding', 'head', 'hidden_matrix']
"""

_MAPS = (nn.Linear, nn.Bilinear, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase, _ConvNd)
_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _NormBase)
_WEIGHT = re.compile(r"(^|_)weight(_|$)")
_BIAS = re.compile(r"(^|_)bias(_|$)")


def roles(model: nn.Module) -> dict[str, ParameterRole]:
    """The role of every parameter by its name in `model.named_parameters()`; a tied parameter has its first name only.

    Example:
        >>> roles(nn.Linear(2, 3))
        {'weight': 'hidden_matrix', 'bias': 'bias'}

    Raises:
        InputError: a module declares a role for a name that it does not have.
        UnknownName: a module declares an unknown role.
    """
    declarations = {path: _declarations(module) for path, module in model.named_modules()}
    by_name: dict[str, ParameterRole] = {}
    for name, parameter in model.named_parameters():
        path, _, own = name.rpartition(".")
        role = _declared(declarations, name)
        by_name[name] = role or _derived(model.get_submodule(path), own, parameter)
    return by_name


def _declarations(module: nn.Module) -> dict[str, ParameterRole]:
    merged: dict[str, ParameterRole] = {}
    for cls in reversed(type(module).__mro__):
        own: Mapping[str, ParameterRole] = vars(cls).get("parameter_roles", {})
        merged |= own
    of_instance: Mapping[str, ParameterRole] = vars(module).get("parameter_roles", {})
    merged |= of_instance
    for name, role in merged.items():
        if role not in get_args(ParameterRole):
            raise UnknownName("parameter role", role, get_args(ParameterRole))
        try:
            attrgetter(name)(module)
        except AttributeError as error:
            known = [
                *(known for known, _ in module.named_parameters()),
                *(known for known, _ in module.named_children()),
            ]
            raise InputError(
                f"{type(module).__name__}.parameter_roles: expected names of parameters or submodules, got {name!r}."
                f"{did_you_mean(name, known)} Known: {', '.join(known) or 'none'}."
            ) from error
    return merged


def _declared(declarations: Mapping[str, Mapping[str, ParameterRole]], name: str) -> ParameterRole | None:
    parts = name.split(".")
    for begin in range(len(parts)):  # from the outermost module to the owner
        own = declarations[".".join(parts[:begin])]
        for end in range(len(parts), begin, -1):  # the full name first, then the submodules that contain the parameter
            role = own.get(".".join(parts[begin:end]))
            if role is not None:
                return role
    return None


def _derived(owner: nn.Module, name: str, parameter: nn.Parameter) -> ParameterRole:
    if _BIAS.search(name):
        return "bias"
    if _WEIGHT.search(name):
        for kinds, role in _ROLE_OF_WEIGHTS.items():
            if isinstance(owner, kinds):
                return role
    if parameter.ndim <= 1:
        return "scalar" if parameter.numel() == 1 else "vector"
    return "table"


_ROLE_OF_WEIGHTS: dict[tuple[type[nn.Module], ...], ParameterRole] = {
    _MAPS: "hidden_matrix",
    _EMBEDDINGS: "embedding",
    _NORMS: "vector",
}
