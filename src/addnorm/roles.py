"""Roles of parameters: what each one is to the module that owns it. Its shape alone does not say.

A module declares the roles of its parameters in a class attribute, which copies and reloads of a model keep. A name is that
of a parameter, or of a part all of whose parameters have the role; a subclass adds to what its bases declare:

    class PairWeights(nn.Module):
        parameter_roles = {"alpha": "scalar", "mix": "scalar", "out.weight": "head"}

Where several modules speak of one parameter, the outermost is right: it knows what its parts are for. torch's own modules
(linear maps, convolutions, recurrent cells, attention, embeddings, norms) need no declaration.

A parameter that nobody declares is never taken for a matrix, whatever its shape: two axes may be a map between activations, but
just as well a vector per layer or a number per bucket and head. So weight decay, and whatever else is meant for
matrices alone, leaves it out until its module says more.
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
"""`embedding`: a row of the stream's width per token or position. `head`: the matrix that gives the logits.
`hidden_matrix`: any other map between activations, or a stack of such maps along the leading axes. `vector`: acts entry by
entry, as a norm's gain does; also one per layer or head. `scalar`: a learned number, or one per branch, layer or head.
`bias`: added to activations. `table`: numbers that are looked up, for instance by distance."""

MATRIX_ROLES: frozenset[ParameterRole] = frozenset({"embedding", "head", "hidden_matrix"})
"""Roles of the parameters that are matrices; all others act element by element."""

_MAPS = (nn.Linear, nn.Bilinear, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase, _ConvNd)
_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _NormBase)
_WEIGHT = re.compile(r"(^|_)weight(_|$)")
_BIAS = re.compile(r"(^|_)bias(_|$)")


def roles(model: nn.Module) -> dict[str, ParameterRole]:
    """The role of every parameter, by its name in `model.named_parameters()`; a tied one stands once, under its first name.

    Raises:
        InputError: a module declares a role for a name that it does not have, or a role that does not exist.
    """
    declared = {path: _declarations(module) for path, module in model.named_modules()}
    by_name: dict[str, ParameterRole] = {}
    for name, parameter in model.named_parameters():
        path, _, own = name.rpartition(".")
        role = _declared(declared, name)
        by_name[name] = role or _derived(model.get_submodule(path), own, parameter)
    return by_name


def _declarations(module: nn.Module) -> dict[str, ParameterRole]:
    merged: dict[str, ParameterRole] = {}
    for cls in reversed(type(module).__mro__):
        stated: Mapping[str, ParameterRole] = vars(cls).get("parameter_roles", {})
        merged |= stated
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
                f"{type(module).__name__}.parameter_roles must name its parameters or parts, got {name!r}."
                f"{did_you_mean(name, known)} Known: {', '.join(known) or 'none'}."
            ) from error
    return merged


def _declared(declared: Mapping[str, Mapping[str, ParameterRole]], name: str) -> ParameterRole | None:
    parts = name.split(".")
    for begin in range(len(parts)):  # modules from the outermost to the owner
        stated = declared[".".join(parts[:begin])]
        for end in range(len(parts), begin, -1):  # a parameter's own name before that of a part that holds it
            role = stated.get(".".join(parts[begin:end]))
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
