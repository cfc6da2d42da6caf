"""Norms of ours in place of a model's, with its weights."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.catalogue import Spec, room
from addnorm.errors import InputError
from addnorm.norm import NormSpec

_EPS = ("eps", "variance_epsilon")


def replace_norms(model: nn.Module, paths: tuple[str, ...], given: Any) -> dict[str, nn.Module]:
    """Put norms of a kind in the places of others, with their weights; return those that were there.

    Raises:
        InputError: a module in such a place is no norm, or the kind does not compute what it computes.
    """
    made = {path: _replacement(path, model.get_submodule(path), given) for path in paths}
    before = {path: model.get_submodule(path) for path in paths}
    put(model, made)
    return before


def put(model: nn.Module, modules: Mapping[str, nn.Module]) -> None:
    """Put modules in their places."""
    for path, module in modules.items():
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, module)


def _replacement(path: str, original: nn.Module, given: Any) -> nn.Module:
    parameters = dict(original.named_parameters())
    weight = parameters.get("weight")
    if weight is None or weight.dim() != 1 or len(list(original.children())):
        raise InputError(
            f"norm: {path}: expected a norm with a weight before every branch, got {type(original).__name__}. Leave `norm` out."
        )
    made = _built(original, parameters, given)
    # Measured, not read from names: classes called RMSNorm differ in where eps and gain go, and in whether the gain is
    # 1 + weight.
    if not _equal(original, made, weight):
        kinds = [kind for kind in room("norm").kinds() if _equal(original, _built(original, parameters, kind), weight)]
        raise InputError(
            f"norm: {path}: expected a norm that computes what {type(original).__name__} computes, which the trained weights "
            f"rely on, got {given!r}. Those that do: {', '.join(kinds) or 'none'}."
        )
    return made


def _built(original: nn.Module, parameters: Mapping[str, Tensor], given: Any) -> nn.Module:
    """A norm of that kind with the original's parameters and, unless given, its eps."""
    spec = _spec(original, given)
    weight = parameters["weight"]
    made = spec.build(len(weight), shift="bias" in parameters).to(weight)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name in parameters and parameters[name].shape == parameter.shape:
                parameter.copy_(parameters[name])
    return made.train(original.training)


def _spec(original: nn.Module, given: Any) -> NormSpec:
    if isinstance(given, NormSpec):
        return given
    if isinstance(given, Spec) or not isinstance(given, str | Mapping):
        raise InputError(f"norm: expected a kind, a mapping with `kind`, or a spec of a norm, got {given!r}.")
    fields = {"kind": given} if isinstance(given, str) else dict(given)
    kind = fields.pop("kind", None)
    if not isinstance(kind, str):
        raise InputError(f"norm: expected a mapping with `kind`, got {given!r}.")
    eps = next((value for name in _EPS if (value := getattr(original, name, None)) is not None), None)
    if eps is not None and "eps" in room("norm").spec_class(kind).__dataclass_fields__:
        fields.setdefault("eps", eps)
    spec: NormSpec = room("norm").make(kind, **fields)
    return spec


@torch.no_grad()
def _equal(original: nn.Module, made: nn.Module, weight: Tensor) -> bool:
    x = torch.randn(2, 5, len(weight), generator=torch.Generator().manual_seed(0)).to(weight)
    expected, got = original(x), made(x)
    allowed = 8 * torch.finfo(weight.dtype).eps * expected.abs().max()  # a mean, a root, a product
    return bool((expected - got).abs().max() <= allowed)
