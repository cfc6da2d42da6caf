"""The interface between a rule and the graph: `Site` is one call of one operation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from addnorm.redundancy.graph.elimination import Elimination
from addnorm.redundancy.graph.shift import Shift, spread, still
from addnorm.redundancy.graph.value import Loose, Out, Value

Rule = Callable[..., Out | list[Out]]
"""Takes the site and the operation's own arguments, tensors as `Value`; returns an `Out` per output."""

RULES: dict[str, Rule] = {}
ALWAYS: set[str] = set()
"""Operations whose rule says something even if no input moves."""
AXIAL: set[str] = set()
"""Operations whose rule speaks of their first input's axes, so that it does not apply to a single number."""


def rule(*names: str, always: bool = False, axial: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for operations of these names (`aten` packet names). `always`: also run it when nothing moves;
    `axial`: not on a tensor without axes, where it counts as unknown.
    """

    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"two rules for {name}")
            RULES[name] = function
            if always:
                ALWAYS.add(name)
            if axial:
                AXIAL.add(name)
        return function

    return register


@dataclass
class Site:
    """One call: where it is, the shapes it returns, and the demands it makes."""

    op: str
    target: Any
    """The overload, to be called on known numbers."""
    shapes: list[tuple[int, ...]]
    """Of its outputs."""
    elimination: Elimination
    record: Callable[["Site", str, dict[int, int]], None]
    assume: Callable[[str], None]
    """Note a sentence about the inputs that the proof needs."""
    floating: bool = True
    """Whether its (first) output is of a floating type."""
    module: str = ""
    where: str = ""
    read: frozenset[int] | None = None
    """Which of several outputs anything reads; None where that is not known."""
    noted: dict[int, int] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the only (or first) output."""
        return self.shapes[0]

    def unchanged(self, *values: Value | None) -> None:
        """Demand that these do not move."""
        for value in values:
            if value is not None:
                self.vanish(value.shift)
                for loose in value.loose:
                    self.vanish(loose.source)
                for stray in value.masked.stray if value.masked is not None else ():
                    self.vanish(stray)

    def vanish(self, shift: Shift) -> None:
        """Demand that a shift is zero."""
        self._demand(shift, None)

    def constant(self, shift: Shift, axes: Sequence[int]) -> Shift:
        """Demand that a shift is the same all along these axes together; the shift as it then is.

        Along axes of one entry that says nothing, so nothing may be concluded for longer inputs: it must vanish
        instead.
        """
        axes = [axis % len(shift.shape) for axis in axes]
        if all(shift.shape[axis] == 1 for axis in axes):
            self.vanish(shift)
        else:
            self._demand(shift, axes)
        return self.elimination.now(shift)

    def level(self, value: Value, axes: Sequence[int]) -> Value:
        """Demand that a value moves, if at all, equally along these axes: its shift and its loose moves. The value as
        it then is.
        """
        axes = [axis % len(value.shape) for axis in axes]
        if value.shift:
            self.constant(value.shift, axes)
        kept = []
        for loose in value.loose:
            if all(axis in loose.axes for axis in axes):
                self.constant(loose.source, [loose.axes[axis] for axis in axes])
            elif loose.escape is not None and all(axis in loose.escape.axes or axis in loose.axes for axis in axes):
                loose = self._escaped(value.shape, loose, axes)
            else:
                self.vanish(loose.source)
            kept.append(loose)
        return replace(value, loose=tuple(kept)).brought_up(self.now)

    def _escaped(self, shape: tuple[int, ...], loose: Loose, axes: Sequence[int]) -> Loose:
        """Make use of a milder demand; along the axes the move is then constant, which a new axis of its source says."""
        if all(shape[axis] == 1 for axis in axes) or loose.escape is None:
            self.vanish(loose.source)
            return loose
        self.vanish(loose.escape.shift)
        others = [axis for axis in axes if axis in loose.axes]
        if others:
            self.constant(loose.source, [loose.axes[axis] for axis in others])
        new = [axis for axis in axes if axis not in loose.axes]
        source = spread(loose.source, (*(shape[axis] for axis in new), *loose.source.shape))
        moved = {axis: own + len(new) for axis, own in loose.axes.items()} | {axis: at for at, axis in enumerate(new)}
        return replace(loose, source=source, axes=moved, escape=None)

    def settled(self, value: Value) -> Value:
        """The value without loose moves: demand that what they come from does not move."""
        for loose in value.loose:
            self.vanish(loose.source)
        return replace(value, loose=()).brought_up(self.now)

    def now(self, shift: Shift) -> Shift:
        """The shift in terms of what is still free."""
        return self.elimination.now(shift)

    def still(self, at: int = 0) -> Out:
        """An output that does not move."""
        return Out(still(self.shapes[at]))

    def all_still(self) -> list[Out]:
        """No output moves."""
        return [self.still(at) for at in range(len(self.shapes))]

    def _demand(self, shift: Shift, axes: Sequence[int] | None) -> None:
        taken: dict[int, int] = {}

        def note(block: int, freedom: int) -> None:
            if freedom:
                taken[block] = taken.get(block, 0) + freedom

        self.elimination.demand(shift, axes, note)
        if taken:
            text = "unchanged" if axes is None else f"constant along axis {', '.join(map(str, axes))}"
            self.record(self, text, taken)


def tensors(arguments: Any) -> list[Value]:
    """All values among nested arguments."""
    if isinstance(arguments, Value):
        return [arguments]
    if isinstance(arguments, dict):
        arguments = list(arguments.values())
    if isinstance(arguments, tuple | list):
        return [value for each in arguments for value in tensors(each)]
    return []


def unchanged(site: Site, *args: Any, **kwargs: Any) -> list[Out]:
    """The rule of every operation that has none: if no input moves, no output does. Always true."""
    site.unchanged(*tensors(args), *tensors(kwargs))
    return site.all_still()


def numbers(value: Value) -> torch.Tensor:
    """A value's known numbers; only for values that are known."""
    if value.known is None:
        raise ValueError("not known")
    return value.known
