"""Room of the switches: changes at evaluation on longer text, without retraining.

A switch wraps the model's position for one evaluation at one length. `switched` returns a view of the model that shares
every parameter and has another position; the model is unchanged. At the train length every switch is the identity.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from addnorm.catalogue import Spec, room
from addnorm.errors import InputError
from addnorm.insight.positioned import with_position
from addnorm.model.architecture import Architecture
from addnorm.model.transformer import Transformer
from addnorm.position import Position

__all__ = ["Reach", "SwitchSpec"]


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The lengths of training and of evaluation.

    Raises:
        InputError: a length is not positive.

    Example:
        >>> Reach(trained=128, length=512, causal=True).scale
        4.0
    """

    trained: int
    """Tokens per sequence in training."""
    length: int
    """Tokens per sequence in this evaluation."""
    causal: bool
    """True if a position attends only to itself and earlier ones."""
    windows: tuple[int | None, ...] = (None,)
    """The model's windows, layer by layer and from the start again; `switched` sets them."""

    def __post_init__(self) -> None:
        if self.trained < 2 or self.length < 1:
            raise InputError(
                f"expected a train length of at least 2 and a length of at least 1, got {self.trained} and {self.length}."
            )

    @property
    def scale(self) -> float:
        """Length over train length, at least 1: s in the papers."""
        return max(1.0, self.length / self.trained)


@dataclass(frozen=True, kw_only=True)
class SwitchSpec(Spec):
    """Base of every switch's configuration.

    Example:
        >>> from addnorm.insight.extrapolation.switches.local_window import LocalWindow
        >>> from addnorm.position.alibi import Alibi
        >>> from addnorm.shape import Shape
        >>> position = Alibi().build(Shape(width=16, depth=2, heads=2, kv_heads=2, hidden=32, max_seq=64))
        >>> LocalWindow(window=8).wrap(position, Reach(trained=16, length=64, causal=True)).size
        8
    """

    changes: ClassVar[str]
    """The changed part in one word. At most one switch that changes the rotation can be applied at a time."""

    @abstractmethod
    def require(self, model: Architecture) -> None:
        """Require that the switch applies to the model.

        Raises:
            InputError: it does not apply.
        """

    @abstractmethod
    def wrap(self, position: Position, reach: Reach) -> Position:
        """Return the position that replaces the model's own at that length."""


def require_softmax(kind: str, model: Architecture) -> None:
    """Require attention that is normalised by a softmax.

    Raises:
        InputError: the model normalises in another way.
    """
    normalisation = model.normalises_by
    if normalisation != "softmax":
        raise InputError(
            f"switch '{kind}': expected attention that is normalised by a softmax, got "
            f"'{normalisation}'. Leave the switch out, or choose the variants with --variant."
        )


Combination = tuple[SwitchSpec, ...]
"""Switches that are applied together; empty for the unchanged model."""


def parse_switches(text: str) -> tuple[Combination, ...]:
    """Parse `log_n,yarn+local_window`: evaluations separated by commas, combined switches joined by `+`.

    Raises:
        UnknownName: an unknown switch.
        InputError: an evaluation is given twice, or switches exclude each other.
    """
    combinations: list[Combination] = []
    for part in (part.strip() for part in text.split(",")):
        combination = tuple(room("switch").make(kind.strip()) for kind in part.split("+"))
        rotating = [switch.kind for switch in combination if switch.changes == "rotation"]
        # Both would rebuild the rotation from the model's own, and the second would undo the first without a word.
        if len(rotating) > 1:
            raise InputError(
                f"{' and '.join(rotating)} both change the rotation: expected at most one of them at a time. To "
                f"compare them: --with {','.join(rotating)}."
            )
        if len(set(combination)) < len(combination) or any(set(combination) == set(one) for one in combinations):
            raise InputError(f"expected every switch once, got {text!r}.")
        combinations.append(combination)
    return tuple(combinations)


def name_of(combination: Combination) -> str:
    """Name a combination, such as `yarn+local_window`; `none` for the unchanged model."""
    return "+".join(switch.kind for switch in combination) or "none"


def require_all(combination: Combination, model: Architecture) -> None:
    """Require that all switches apply to the model.

    Raises:
        InputError: one does not apply.
    """
    for switch in combination:
        switch.require(model)


def switched(model: Transformer, combination: Sequence[SwitchSpec], reach: Reach) -> Transformer:
    """Return a view of the model with the switches applied: the same parameters, another position.

    Raises:
        InputError: a switch does not apply to the model.
    """
    position = model.position
    reach = replace(reach, windows=model.spec.windows)
    # Rotations rebuild the position and come first; the other switches wrap it, a scale last: it counts what is visible.
    for switch in sorted(combination, key=lambda each: (each.changes != "rotation", each.changes == "scale")):
        switch.require(model.spec)
        position = switch.wrap(position, reach)
    return with_position(model, position)
