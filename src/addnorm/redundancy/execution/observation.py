"""Observed output: the numbers of a model's output that a redundant parameter must not change.

logits    everything that the model returns: tensors, numbers and arrays inside tuples, lists, dicts, dataclasses and other
          objects. Integers and booleans must stay equal, floating-point numbers up to rounding. Only a `ModelOutput` of
          Transformers, whose fields have agreed meanings, has auxiliary fields that are left out: a loss, the key-value
          cache, inner states and attentions; where there are logits also the states from which these are computed.
softmax   log_softmax over the last axis of the scores: a shift that is equal for all classes has no effect. Scores are
          the entries of a named output whose name contains "logits", or all floating-point tensors. Everything else is
          observed as it is, and so is a last axis of one entry, whose softmax is always one.
loss      the entry `loss` where the output has one, or the output itself if it is one number; else as softmax, since
          every cross-entropy is a function of it.

The choice is part of the graph (`Observed` wraps the model), so that both methods observe the same tensors.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from types import ModuleType
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn

from addnorm.errors import InputError, UnknownName

Observe = Literal["logits", "softmax", "loss"]

_ASIDE = ("loss", "past_key_values", "hidden_states", "attentions", "cache", "mems")
"""Fields of a `ModelOutput` that are not predictions: a cache changes with the key bias although no prediction does."""
_INNER = (*_ASIDE, "last_hidden_state", "pooler_output", "model_output")
"""Fields of a `ModelOutput` that are not predictions if logits are computed from them."""
_DENSE = {"nested": "to_padded_tensor(0.0)", "quantised": "dequantize()"}
"""Calls that make a plain array of a tensor in an unusual form."""
_DEPTH = 3
"""Levels of an output at which an object's attributes are still read: an object may refer to anything."""


@dataclass(frozen=True, kw_only=True)
class ObservedNumbers:
    """All observed numbers of one call."""

    floats: Tensor
    """Floating-point numbers, in float64, which may change by rounding."""
    integers: Tensor
    """Integers and booleans, in int64, which may not change."""

    @classmethod
    def joined(cls, calls: Sequence["ObservedNumbers"]) -> "ObservedNumbers":
        """The numbers of several calls as those of one."""
        return (
            calls[0]
            if len(calls) == 1
            else cls(
                floats=torch.cat([each.floats for each in calls]), integers=torch.cat([each.integers for each in calls])
            )
        )

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.floats.numel() + self.integers.numel()


@dataclass(frozen=True, kw_only=True)
class ObservedNames:
    """Names of the parts of an output, such as `logits` or `output[1]`."""

    observed: tuple[str, ...]
    omitted: tuple[str, ...]
    """Auxiliary fields, and objects without numbers that could be compared."""


def observed(output: Any, observe: Observe) -> tuple[Tensor, ...]:
    """Return the observed tensors of a model's output.

    Raises:
        UnknownName: unknown observation.
        InputError: the output contains no floating-point number, or a sparse, nested or quantised tensor.
    """
    return tuple(tensor for _, tensor in _selected(output, observe, []))


def unusual_form(tensor: Tensor) -> str:
    """Describe a tensor whose numbers are not a plain array: sparse, nested or quantised; empty for others."""
    if tensor.is_nested:
        return "nested"
    if tensor.is_quantized:
        return "quantised"
    layout = str(tensor.layout).removeprefix("torch.")
    return "" if layout == "strided" else f"sparse ({layout})" if "sparse" in layout else f"in the layout {layout}"


def observed_numbers(output: Any, observe: Observe) -> ObservedNumbers:
    """Return all observed numbers of a model's output.

    Raises:
        UnknownName, InputError: as for `observed`.
    """
    tensors = observed(output, observe)
    integers = [each.detach().flatten().to("cpu", torch.int64) for each in tensors if not each.is_floating_point()]
    return ObservedNumbers(
        floats=torch.cat([each.double().flatten() for each in tensors if each.is_floating_point()]),
        integers=torch.cat(integers) if integers else torch.zeros(0, dtype=torch.int64),
    )


def observed_names(output: Any, observe: Observe) -> ObservedNames:
    """Return the names of the observed parts of a model's output, with their type unless they are floating-point numbers,
    and the names of the other parts.

    Raises:
        UnknownName, InputError: as for `observed`.
    """
    omitted: list[str] = []
    names = [
        name if tensor.is_floating_point() else f"{name} ({str(tensor.dtype).removeprefix('torch.')})"
        for name, tensor in _selected(output, observe, omitted)
    ]
    return ObservedNames(observed=tuple(dict.fromkeys(names)), omitted=tuple(dict.fromkeys(omitted)))


class Observed(nn.Module):
    """The model followed by the observation; its parameters' names get the prefix `model.`."""

    def __init__(self, model: nn.Module, observe: Observe) -> None:
        super().__init__()
        self.model = model
        self.observe: Observe = observe
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """Return the observed tensors."""
        return observed(self.model(*args, **kwargs), self.observe)


def _selected(output: Any, observe: Observe, omitted: list[str]) -> list[tuple[str, Tensor]]:
    """The observed tensors with their names. Appends the names of the other parts to `omitted`."""
    if observe not in get_args(Observe):
        raise UnknownName("observation", observe, get_args(Observe))
    named = _named(output)
    if observe == "loss":
        if named is not None and isinstance(named.get("loss"), Tensor):
            omitted += [str(name) for name, value in named.items() if name != "loss" and value is not None]
            return [("loss", named["loss"])]
        if isinstance(output, Tensor) and output.dim() == 0:
            return [("output", output)]
    parts = list(_leaves(output, "", omitted.append, frozenset()))
    if not any(tensor.is_floating_point() for _, tensor in parts):
        given = ", ".join(dict.fromkeys(str(tensor.dtype).removeprefix("torch.") for _, tensor in parts))
        raise InputError(
            f"expected a model that returns floating-point tensors, got {_class_name(output)} "
            f"{f'with {given} only' if given else 'without any'}. Wrap the model so that it returns its prediction, such as "
            "the scores from which a class is chosen."
        )
    if not any(tensor.is_floating_point() and tensor.numel() for _, tensor in parts):
        empty = ", ".join(f"{name} of shape {list(each.shape)}" for name, each in parts if each.is_floating_point())
        raise InputError(f"expected outputs with numbers, got {empty}. Give inputs for which the model returns some.")
    if observe == "logits":
        return parts
    # Where an output names its logits, other tensors are not scores: boxes next to class scores count entry by entry.
    roots = {str(name) for name, value in (named or {}).items() if "logits" in str(name) and value is not None}
    return [
        (f"softmax of {name}", torch.log_softmax(tensor, dim=-1)) if _is_scores(name, tensor, roots) else (name, tensor)
        for name, tensor in parts
    ]


def _class_name(output: Any) -> str:
    return "Tensor" if isinstance(output, Tensor) else type(output).__name__  # a trace passes tensors of other classes


def _is_scores(name: str, tensor: Tensor, roots: set[str]) -> bool:
    """True if the softmax of a tensor is observed, instead of the tensor."""
    chosen = not roots or any(name == root or name.startswith((f"{root}.", f"{root}[")) for root in roots)
    return chosen and tensor.is_floating_point() and tensor.dim() > 0 and tensor.shape[-1] > 1


def _leaves(value: Any, path: str, omit: Callable[[str], None], above: frozenset[int]) -> Iterator[tuple[str, Tensor]]:
    """All numbers inside an output, as tensors with their names; both parts of complex ones. `above` are the objects around
    the value."""
    name = path or "output"
    if value is None or isinstance(value, str | bytes) or id(value) in above:
        return
    if isinstance(value, Tensor):
        if form := unusual_form(value):
            raise InputError(
                f"expected dense outputs, got {name}, which is {form}. Wrap the model so that it returns a dense tensor, for "
                f"example by {_DENSE.get(form, 'to_dense()')}."
            )
        yield name, torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    elif isinstance(value, bool | int | float | np.ndarray | np.generic):
        yield name, torch.as_tensor(value)
    elif isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        yield name, torch.scalar_tensor(cast(float, value))  # in a trace; the export then finds that it comes from data
    elif (named := _named(value, objects=len(above) < _DEPTH)) is not None:
        # Only a class with agreed meanings has fields that may be left out. In any other object a field called `cache`
        # is a result.
        aside = _auxiliary(named) if _is_model_output(value) else set()
        for key, inner in named.items():
            if key not in aside:
                yield from _leaves(inner, f"{path}.{key}" if path else str(key), omit, above | {id(value)})
            elif inner is not None:
                omit(f"{path}.{key}" if path else str(key))
    elif isinstance(value, tuple | list):
        for at, inner in enumerate(value):
            yield from _leaves(inner, f"{name}[{at}]", omit, above | {id(value)})
    else:
        omit(f"{name} ({type(value).__qualname__})")


def _named(value: Any, *, objects: bool = True) -> dict[Any, Any] | None:
    """The entries of a named output: a mapping, a dataclass, or any other object with attributes unless `objects` is False;
    None for the rest."""
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    plain = isinstance(value, Tensor | nn.Module | ModuleType | type) or callable(value)
    return dict(vars(value)) if objects and not plain and getattr(value, "__dict__", None) else None


def _is_model_output(value: Any) -> bool:
    """True for a `transformers.utils.ModelOutput`. Transformers need not be installed."""
    return any(
        each.__name__ == "ModelOutput" and each.__module__.partition(".")[0] == "transformers"
        for each in type(value).__mro__
    )


def _auxiliary(named: Mapping[Any, Any]) -> set[Any]:
    """Names of the auxiliary fields of a `ModelOutput`."""
    logits = {name for name, value in named.items() if "logits" in str(name) and value is not None}
    return {name for name in named if name not in logits and str(name).endswith(_INNER if logits else _ASIDE)}
