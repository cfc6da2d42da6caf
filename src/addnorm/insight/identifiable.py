"""Learned numbers of a mechanism that can matter, and those that are a gauge: another way to write down the same function.

A number is a gauge if other parameters can absorb any change of it: the factor of a branch, which the matrix before it can take
over. The count is that of the numerical method of `addnorm.symmetries`, in a reduced model of the same depth and mechanisms.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch

from addnorm.catalogue import JOINT_ROOMS, MECHANISM_ROOMS
from addnorm.errors import AddnormError, InputError, UnknownName
from addnorm.model.presets import belongs
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.symmetry.counting import LARGEST, LearnedNumbers, learned_numbers
from addnorm.testing.contract import shrunk

_SIZES = ({"width": 8, "hidden": 5, "heads": 2}, {"width": 4, "hidden": 3, "heads": 2})
"""Sizes of reduced models, the first that fits."""
_SHALLOW = 4
"""Depth from which the smallest sizes are taken: a count takes seconds, and grows with the cube of the model's numbers."""
_VOCAB = 27
"""Tokens. What sees tokens alone must not have fewer inputs than it has numbers."""


def reduced(spec: ModelSpec) -> ModelSpec:
    """Return the spec of a small model with the same mechanisms and depth.

    Raises:
        InputError: even the smallest has too many numbers for a count.
    """
    count = 0
    for sizes in _SIZES[spec.depth > _SHALLOW :]:
        heads = {"kv_heads": None if spec.kv_heads is None else 1}
        small = shrunk(spec, vocab=_VOCAB, max_seq=16, depth=spec.depth, attention="reference", **(sizes | heads))
        if small.heads == 1:
            small = replace(small, kv_heads=None)
        with torch.device("meta"):
            count = sum(each.numel() for each in Transformer(small).parameters())
        if count <= LARGEST:
            return small
    raise InputError(
        f"expected at most {LARGEST} numbers in a reduced model, got {count} with {spec.depth} layers of width "
        f"{_SIZES[-1]['width']}."
    )


def groups_of(model: Transformer, rooms: Sequence[str] = MECHANISM_ROOMS) -> dict[str, list[str]]:
    """The parameters of each room's mechanism, by room."""
    groups: dict[str, list[str]] = {}
    for name, _ in model.named_parameters():
        if room := next((room for room in rooms if belongs(name, room)), None):
            groups.setdefault(room, []).append(name)
    return groups


def identifiable(spec: ModelSpec) -> dict[str, LearnedNumbers]:
    """Count, per joint, the learned numbers that can matter when all other parameters may be chosen to fit.

    A rotation of the stream does not count as a change of a mechanism that reads it.

    Args:
        spec: of any size; its reduced model is analysed.

    Raises:
        InputError: no reduced model is small enough.

    Example:
        >>> import addnorm
        >>> spec = addnorm.preset("llama", vocab=64, width=32, depth=2, heads=2, hidden=64, max_seq=16, residual="rezero")
        >>> count = identifiable(spec)["residual"]
        >>> count.numbers, count.matter
        (4, 0)
    """
    return dict(_counted(reduced(spec), None))


def counts_by_variant(models: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """Return, per variant and joint, the learned numbers and how many of them can matter; or the reason why not.

    `addnorm plan --numbers` and `addnorm explain --numbers` show the same counts.

    Args:
        models: by variant; those that are not of this library are left out, and so are those whose joints have no numbers.
    """
    counts: dict[str, dict[str, Any]] = {}
    for name, model in models.items():
        if not isinstance(model, ModelSpec):
            continue
        try:
            counts[name] = {
                room: {"numbers": each.numbers, "unread": each.unread, "matter": each.matter}
                for room, each in identifiable(model).items()
            }
        except InputError as error:
            counts[name] = {"reason": str(error)}
    return {name: each for name, each in counts.items() if each}


def gauges(
    spec: ModelSpec, groups: Mapping[str, Sequence[str]], *, in_turn: bool = False
) -> dict[str, tuple[str, ...]]:
    """Return the groups of which other parameters can absorb every change, each with the families that do it.

    A norm's eps, which breaks a scale of the stream by too little to matter, is left out. Three layers are counted: of two,
    what reads an earlier layer has too little to compare it with (the weights of the embeddings in `lambdas`).

    Args:
        spec: of any size.
        groups: names of parameters by group. Those of layers that the reduced model lacks are left out.
        in_turn: True if a gauge is held fixed for the groups after it, so that of two groups that only absorb each other the
            first is one.

    Raises:
        UnknownName: the model has no such parameter.

    Example:
        >>> import addnorm
        >>> spec = addnorm.preset("llama", vocab=64, width=32, depth=2, heads=2, hidden=64, max_seq=16, residual="rezero")
        >>> gauges(spec, {"alpha": ["residual.alpha"], "gains": ["final_norm.weight"]})
        {'alpha': ('learned factor of a branch',), 'gains': ('gain into the next matrix',)}
    """
    with torch.device("meta"):
        own = {name for name, _ in Transformer(spec).named_parameters()}
    for name in (each for names in groups.values() for each in names):
        if name not in own:
            raise UnknownName("parameter", name, sorted(own))
    for depth in dict.fromkeys((min(spec.depth, 3), spec.depth)):
        try:
            small = reduced(replace(spec, depth=depth, norm=_without_eps(spec.norm)))
            with torch.device("meta"):
                known = {name for name, _ in Transformer(small).named_parameters()}
            kept = {group: tuple(name for name in names if name in known) for group, names in groups.items()}
            counts = _counted(small, tuple((group, names) for group, names in kept.items() if names), in_turn)
        except AddnormError:  # settings that need more layers, or a rank that is not clear
            continue
        return {group: each.families for group, each in counts if each.numbers > each.unread and not each.matter}
    return {}


def _without_eps(norm: Any) -> Any:
    return replace(norm, eps=1e-30) if any(each.name == "eps" for each in fields(norm)) else norm


@functools.lru_cache(maxsize=64)
def _counted(
    spec: ModelSpec, groups: tuple[tuple[str, tuple[str, ...]], ...] | None, in_turn: bool | None = None
) -> tuple[tuple[str, LearnedNumbers], ...]:
    with torch.device("meta"):
        chosen = groups_of(Transformer(spec), JOINT_ROOMS) if groups is None else dict(groups)
    if not chosen:
        return ()
    model = spec.build(seed=0).eval()
    model.residual.advance(10**6)  # a schedule begins as the identity, where nothing of a branch matters
    tokens = torch.arange(_VOCAB).reshape(3, 9)
    named = in_turn is not None
    counts = learned_numbers(
        model, tokens, chosen, upright="embedding.weight", name_families=named, in_turn=bool(in_turn)
    )
    return tuple(counts.items())
