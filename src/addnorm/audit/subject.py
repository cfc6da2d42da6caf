"""A model together with inputs that it takes and with what of its output is observed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from addnorm.errors import InputError

Observe = Literal["logits", "softmax", "loss"]
OBSERVE: tuple[str, ...] = get_args(Observe)

NOT_OBSERVED = frozenset(
    {
        "loss",
        "past_key_values",
        "hidden_states",
        "attentions",
        "cross_attentions",
        "decoder_hidden_states",
        "decoder_attentions",
        "encoder_hidden_states",
        "encoder_attentions",
        "encoder_last_hidden_state",
    }
)
"""Entries of a named output that are by-products: caches and traces of the inside. Outputs without names are observed whole."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """One call's positional and keyword inputs."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any]

    @classmethod
    def of(cls, given: Any) -> "Inputs":
        """A tensor, a tuple (or list) of positional or a mapping of keyword inputs."""
        if isinstance(given, Inputs):
            return given
        if isinstance(given, Mapping):
            return cls(kwargs=dict(given))
        if isinstance(given, tuple | list):
            return cls(args=tuple(given), kwargs={})
        if isinstance(given, Tensor):
            return cls(args=(given,), kwargs={})
        raise InputError(
            f"inputs are a tensor, a tuple of positional or a dict of keyword inputs, not {type(given).__name__}. "
            "Give what you would call the model with."
        )

    def map(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        """The same call with every tensor changed."""
        def one(leaf: Any) -> Any:
            return change(leaf) if isinstance(leaf, Tensor) else leaf

        return Inputs(args=tree_map(one, self.args), kwargs=tree_map(one, dict(self.kwargs)))

    def call(self, model: nn.Module) -> Any:
        """The model's own output."""
        return model(*self.args, **self.kwargs)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What an audit is about."""

    model: nn.Module
    inputs: Inputs
    observe: Observe
    training: bool


def observed(output: Any, observe: Observe) -> list[Tensor]:
    """The tensors of an output that must not change.

    `logits`: every floating-point tensor of the output; of a named output (a mapping, as Transformers returns) those whose
    name holds "logits" if there are any, else all that are not by-products (`NOT_OBSERVED`). `softmax`: their log-softmax over
    the last dimension. `loss`: the entry named `loss`, or the output itself if it is one number.

    Raises:
        InputError: nothing of that kind comes out.
    """
    if observe == "loss":
        return [_loss(output)]
    found = _floating(output)
    if not found:
        raise InputError(
            f"the model returns no floating-point tensor to observe, only {type(output).__name__}. "
            "Wrap it in a module that returns its logits."
        )
    return found if observe == "logits" else [torch.log_softmax(tensor, dim=-1) for tensor in found]


def _loss(output: Any) -> Tensor:
    loss = output.get("loss") if isinstance(output, Mapping) else output
    if isinstance(loss, Tensor) and loss.numel() == 1 and loss.is_floating_point():
        return loss
    raise InputError(
        f"observe='loss' needs a model that returns its loss: one number, or an output with an entry 'loss'; this returns "
        f"{type(output).__name__}. Give labels among the inputs, or use observe='softmax'."
    )


def _floating(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, Mapping):
        logits = {key: value for key, value in output.items() if "logits" in str(key)}
        kept = logits or {key: value for key, value in output.items() if key not in NOT_OBSERVED}
        return [tensor for value in kept.values() for tensor in _floating(value)]
    if isinstance(output, tuple | list):
        return [tensor for value in output for tensor in _floating(value)]
    if is_dataclass(output) and not isinstance(output, type):
        return _floating({entry.name: getattr(output, entry.name) for entry in fields(output)})
    return []
