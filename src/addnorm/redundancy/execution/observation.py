"""Observed output: the tensors of a model's output that a redundant parameter must not change.

logits    the output itself. Of a named output (a dataclass or dict, as Transformers returns) every floating tensor except
          a loss, the key-value cache, and lists of inner states and attentions; nor, beside entries whose name contains
          "logits", the states from which these are computed. Boxes, masks and embeddings beside logits count.
softmax   log_softmax over the last axis of the same (where there are logits, of them only): a shift that is equal for
          all classes has no effect.
loss      the entry `loss` where the output has one, or the output itself if it is one number; else as softmax, since
          every cross-entropy is a function of it.

The choice is part of the graph (`Observed` wraps the model), so that both methods observe the same tensors.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn

from addnorm.errors import InputError, UnknownName

Observe = Literal["logits", "softmax", "loss"]

_ASIDE = ("loss", "past_key_values", "hidden_states", "attentions", "cache", "mems")
"""Named outputs that are not predictions: a cache changes with the key bias although no prediction does."""
_INNER = (*_ASIDE, "last_hidden_state", "pooler_output", "model_output")
"""Named outputs that are not predictions if logits are computed from them."""


def observed(output: Any, observe: Observe) -> tuple[torch.Tensor, ...]:
    """Return the observed tensors of a model's output.

    Raises:
        UnknownName: unknown observation.
        InputError: the output contains no floating-point tensor.
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
    tensors = _tensors(scores)
    if not tensors and not _tensors(others):
        raise InputError(
            f"expected a model that returns floating-point tensors, got {type(output).__name__} without any. Wrap the model so "
            "that it returns its prediction."
        )
    if observe != "logits":
        tensors = tuple(torch.log_softmax(each, dim=-1) for each in tensors)
    return (*tensors, *_tensors(others))


def _named(value: Any) -> dict[Any, Any] | None:
    """The entries of a named output; None for any other."""
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return None


def _prediction(named: dict[Any, Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The entries to which a softmax may be applied, and the other observed ones."""
    logits = {name: value for name, value in named.items() if "logits" in str(name) and value is not None}
    if not logits:
        return {name: value for name, value in named.items() if not str(name).endswith(_ASIDE)}, {}
    others = {name: value for name, value in named.items() if name not in logits and not str(name).endswith(_INNER)}
    return logits, others


def _tensors(value: Any) -> tuple[torch.Tensor, ...]:
    """Floating-point tensors (of complex ones both parts) inside nested tuples, lists, dicts and dataclasses, in
    order."""
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
    """The model followed by the observation; its parameters' names get the prefix `model.`."""

    def __init__(self, model: nn.Module, observe: Observe) -> None:
        super().__init__()
        self.model = model
        self.observe: Observe = observe
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """Return the observed tensors."""
        return observed(self.model(*args, **kwargs), self.observe)
