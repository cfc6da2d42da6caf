"""Room of the evaluation switches: what may be changed at a longer length without retraining.

A switch wraps the model's position, for one evaluation at one length. The model itself is not touched: `switched` gives a
view of it that shares every parameter and has another position. At the train length every switch changes nothing.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from addnorm.catalogue import Spec, room
from addnorm.errors import InputError
from addnorm.insight.positioned import with_position
from addnorm.model.architecture import Architecture
from addnorm.model.transformer import Transformer
from addnorm.position import Position


@dataclass(frozen=True, kw_only=True)
class Reach:
    """How far beyond its training a model is evaluated.

    Raises:
        InputError: a length that is not positive.
    """

    trained: int
    """Tokens per sequence in training."""
    length: int
    """Tokens per sequence now."""
    causal: bool
    """Whether a position sees the earlier ones alone."""

    def __post_init__(self) -> None:
        if self.trained < 2 or self.length < 1:
            raise InputError(
                f"a switch needs a train length of at least 2 and a length of at least 1, got {self.trained} and {self.length}."
            )

    @property
    def scale(self) -> float:
        """The length over the train length, 1 at least: s in the papers."""
        return max(1.0, self.length / self.trained)


@dataclass(frozen=True, kw_only=True)
class SwitchSpec(Spec):
    """Base of every switch."""

    changes: ClassVar[str]
    """What the switch changes, in one word. Of those that change the rotation a model can have one at a time."""

    @abstractmethod
    def require(self, model: Architecture) -> None:
        """Make sure that the switch means something for the model.

        Raises:
            InputError: it does not.
        """

    @abstractmethod
    def wrap(self, position: Position, reach: Reach) -> Position:
        """The position to use at that length in place of the model's own."""


def require_softmax(kind: str, model: Architecture) -> None:
    """For the switches whose reason is the softmax.

    Raises:
        InputError: the model's attention is not normalised by one.
    """
    if model.gau is not None and model.gau.normalisation != "softmax":
        raise InputError(
            f"switch '{kind}' is for attention that is normalised by a softmax, this model's is by "
            f"'{model.gau.normalisation}'. Leave the switch out, or choose the variants with --variant."
        )


Combination = tuple[SwitchSpec, ...]
"""Switches that are on together; none for the model as it is."""


def parse_switches(text: str) -> tuple[Combination, ...]:
    """`log_n,yarn+local_window`: evaluations with commas between, switches that are on together joined by `+`.

    Raises:
        UnknownName: no such switch.
        InputError: an evaluation named twice, or a combination that cannot be.
    """
    found: list[Combination] = []
    for part in (part.strip() for part in text.split(",")):
        combination = tuple(room("switch").make(kind.strip()) for kind in part.split("+"))
        turning = [switch.kind for switch in combination if switch.changes == "rotation"]
        if len(turning) > 1:
            raise InputError(
                f"{' and '.join(turning)} change the same thing, the rotation: have one of them on at a time, or "
                f"compare them: --with {','.join(turning)}."
            )
        if len(set(combination)) < len(combination) or any(set(combination) == set(one) for one in found):
            raise InputError(f"every switch is named once, got {text!r}.")
        found.append(combination)
    return tuple(found)


def name_of(combination: Combination) -> str:
    """`yarn+local_window`; `none` for the model as it is."""
    return "+".join(switch.kind for switch in combination) or "none"


def require_all(combination: Combination, model: Architecture) -> None:
    """Raises:
    InputError: one of the switches does not apply to the model.
    """
    for switch in combination:
        switch.require(model)


def switched(model: Transformer, combination: Sequence[SwitchSpec], reach: Reach) -> Transformer:
    """A view of the model with the switches on: the same parameters, another position. The model stays as it is.

    Raises:
        InputError: a switch does not apply to the model.
    """
    position = model.position
    for switch in sorted(combination, key=lambda one: one.changes != "rotation"):  # which rebuild it; the others wrap
        switch.require(model.spec)
        position = switch.wrap(position, reach)
    return with_position(model, position)
