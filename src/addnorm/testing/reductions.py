"""The law of reductions: a mechanism equals what it declares to equal, with all other parameters at random."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, cast

import torch

from addnorm.errors import BrokenLaw, did_you_mean
from addnorm.model.neutral import Parameters, fill
from addnorm.model.presets import FIELD_OF_ROOM, preset
from addnorm.model.spec import ModelSpec
from addnorm.model.transformer import Transformer
from addnorm.norm.rms import RMS
from addnorm.reduction import Reducible, Reduction
from addnorm.testing.laws import rounding, some_tokens, subject

_LAW = "reduces_as_declared"
_SMALLEST_EPS = 1e-30
"""Far below the mean square of any stream: what is left of an equality "after the next norm" is rounding."""


def reduces_as_declared(room: str, cls: type[Reducible], toy: ModelSpec) -> None:
    """It equals what it says it equals: every declared reduction holds in float64, with all other parameters at random.

    Args:
        toy: the sizes and the other mechanisms.

    Raises:
        BrokenLaw: no declaration, or one that is not true.
    """
    declared = cls.reduces_to()
    if declared is None:
        raise BrokenLaw(
            _LAW,
            f"{cls.__name__} does not say what it equals.",
            "Define `reduces_to`: the settings and parameters with which it equals another mechanism, or () if there are none.",
        )
    if isinstance(declared, Reduction) or not all(isinstance(each, Reduction) for each in declared):
        raise BrokenLaw(
            _LAW,
            f"reduces_to returns {type(declared).__name__}, not a tuple of `Reduction`s.",
            "Write (Reduction(…),), with the comma, or () if it equals nothing else.",
        )
    for reduction in declared:
        known = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        for name in reduction.settings:
            if name not in known:
                raise BrokenLaw(
                    _LAW,
                    f"{cls.__name__} has no field {name!r}, which `settings` names.",
                    f"Known: {', '.join(known) or 'none'}.{did_you_mean(name, known)}",
                )
        _hold(room, cls, reduction, toy)


def _hold(room: str, cls: type[Reducible], reduction: Reduction, toy: ModelSpec) -> None:
    model_fields: dict[str, Any] = dict(reduction.given)
    if reduction.equal == "after the next norm":
        model_fields.setdefault("norm", RMS(eps=_SMALLEST_EPS))
    shared = _changed(toy, model_fields)
    field = FIELD_OF_ROOM[room]
    sibling: Any = cls(**reduction.settings)
    ours = subject(replace(shared, **{field: sibling}))
    theirs = _changed(shared, reduction.to)
    other = theirs.build().double().eval()
    _fill(ours, field, reduction.parameters)
    own, others = ours.state_dict(), other.state_dict()
    # Both models get the same random numbers wherever they have the same parameters; only then does a difference of
    # logits come from the mechanism.
    common = [name for name, value in others.items() if name in own and own[name].shape == value.shape]
    other.load_state_dict(others | {name: own[name] for name in common})
    _fill(other, field, reduction.theirs)
    tokens = some_tokens(shared)
    with torch.no_grad():
        logits, allowed = ours(tokens), rounding(ours, tokens)
        gap = (logits - other(tokens)).abs().max().item()
    if not gap <= allowed:
        raise BrokenLaw(
            _LAW,
            f"with {_in_words(reduction)}, a logit differs from {dict(reduction.to)} by {gap:.2e}; rounding "
            f"explains {allowed:.0e}.",
            "Correct the declaration, or the mechanism.",
        )


def _changed(spec: ModelSpec, changes: Mapping[str, Any]) -> ModelSpec:
    """Change fields as `preset` takes them."""
    made = preset("llama", **changes)
    return replace(spec, **{name: getattr(made, name) for name in changes})


def _fill(model: Transformer, field: str, parameters: Parameters) -> None:
    """Set the mechanism's own parameters and buffers as the reduction says."""
    if not parameters:
        return
    start = cast(ModelSpec, model.spec).build().double().state_dict()
    # A norm's module is an `input_norm`, `final_norm`, …
    own = {
        name: value for name, value in model.state_dict().items() if f".{field}." in f".{name}" or f"_{field}." in name
    }
    fill(own, parameters, start)


def _in_words(reduction: Reduction) -> str:
    held = reduction.parameters if reduction.parameters == "start" else dict(reduction.parameters)
    return f"settings {dict(reduction.settings)}, parameters {held} and {dict(reduction.given)}"
