"""What of a model's output counts: the part of the audit's question that decides what "cannot matter" means.

logits    the output itself. Of a named output (a dataclass or dict, as Transformers returns) every floating tensor except
          a loss, the key-value cache, and lists of inner states and attentions; nor, beside entries whose name contains
          "logits", the states that these are made of. Boxes, masks and embeddings beside logits count.
softmax   log_softmax over the last axis of the same, beside logits of those alone: a shift that is equal for all classes
          does not matter.
loss      the entry `loss` where the output has one, or the output itself if it is one number; else as softmax, since
          every cross-entropy is a function of it.

The choice is part of the graph (`Observed` wraps the model), so the static and the numerical method observe the same
thing.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn

from addnorm.errors import InputError, UnknownName

Observe = Literal["logits", "softmax", "loss"]

_ASIDE = ("loss", "past_key_values", "hidden_states", "attentions", "cache", "mems")
"""Named outputs that are no prediction: a cache changes with the key bias although no prediction does."""
_INNER = (*_ASIDE, "last_hidden_state", "pooler_output", "model_output")
"""Those that are none where logits were made of them."""


def observed(output: Any, observe: Observe) -> tuple[torch.Tensor, ...]:
    """The tensors of a model's output that the audit watches.

    Raises:
        UnknownName: no such observation.
        InputError: nothing in the output is a floating tensor.
    """
    if observe not in get_args(Observe):
        raise UnknownName("observation", observe, get_args(Observe))
    named = _named(output)
    if observe == "loss":
        if named is not None and isinstance(named.get("loss"), torch.Tensor):
            return (named["loss"],)
        if isinstance(output, torch.Tensor) and output.dim() == 0:
            return (output,)
    scores, others = _prediction(named) if named is not None else (output, ())
    watched = _tensors(scores)
    if not watched and not _tensors(others):
        raise InputError(
            f"an audit watches the floating tensors that the model returns; {type(output).__name__} holds none. "
            "Wrap the model so that it returns its prediction."
        )
    if observe != "logits":
        watched = tuple(torch.log_softmax(each, dim=-1) for each in watched)
    return (*watched, *_tensors(others))


def _named(value: Any) -> dict[Any, Any] | None:
    """The entries of a named output; None of any other."""
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return None


def _prediction(named: dict[Any, Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """What a softmax may stand behind, and what else counts."""
    logits = {name: value for name, value in named.items() if "logits" in str(name) and value is not None}
    if not logits:
        return {name: value for name, value in named.items() if not str(name).endswith(_ASIDE)}, {}
    others = {name: value for name, value in named.items() if name not in logits and not str(name).endswith(_INNER)}
    return logits, others


def _tensors(value: Any) -> tuple[torch.Tensor, ...]:
    """Floating tensors (of complex ones both parts) inside nested tuples, lists, dicts and dataclasses, in order."""
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            return (torch.view_as_real(value.resolve_conj()),)
        return (value,) if value.is_floating_point() else ()
    named = _named(value)
    if named is not None:
        return tuple(each for inner in named.values() for each in _tensors(inner))
    if isinstance(value, tuple | list):
        return tuple(each for inner in value for each in _tensors(inner))
    return ()


class Observed(nn.Module):
    """The model followed by the observation; its parameters keep their names behind `model.`."""

    def __init__(self, model: nn.Module, observe: Observe) -> None:
        super().__init__()
        self.model = model
        self.observe: Observe = observe
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """The watched tensors."""
        return observed(self.model(*args, **kwargs), self.observe)
