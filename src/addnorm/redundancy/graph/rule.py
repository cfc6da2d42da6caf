"""Interface between the rules and the graph: `OpCall` is one call of one operation, `rule` registers the rule of an
operation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from addnorm.redundancy.graph.elimination import Elimination
from addnorm.redundancy.graph.shift import Shift, broadcast, zero_shift
from addnorm.redundancy.graph.unit_axes import has_fixed_size
from addnorm.redundancy.graph.value import DataShift, NodeValue, Output, values_in

Rule = Callable[..., Output | list[Output]]
"""Takes the call and the operation's own arguments, tensors as `NodeValue`; returns one `Output` per output."""

RULES: dict[str, Rule] = {}
ALWAYS: set[str] = set()
"""Operations whose rule provides facts even if no input shifts."""
AXIAL: set[str] = set()
"""Operations whose rule refers to the axes of their first input, so that it does not apply to a scalar tensor."""
MASKS: set[str] = set()
"""Operations whose rule provides for inputs with overwritten entries. For the others such inputs must not change."""


def rule(*names: str, always: bool = False, axial: bool = False, masks: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for operations.

    Args:
        names: `aten` packet names of the operations.
        always: also apply the rule when no input shifts.
        axial: do not apply the rule to a tensor without axes; the operation then counts as unknown.
        masks: also apply the rule to inputs whose overwritten entries do not shift as the others do.

    Raises:
        ValueError: an operation has a rule already.
    """

    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"expected one rule per operation, got two for {name}")
            RULES[name] = function
            if always:
                ALWAYS.add(name)
            if axial:
                AXIAL.add(name)
            if masks:
                MASKS.add(name)
        return function

    return register


@dataclass
class OpCall:
    """One call of an operation: its position in the model, the shapes of its outputs, and the demands it makes."""

    op: str
    target: Any
    """The overload, which can be called on known tensors."""
    shapes: list[tuple[int, ...]]
    """Shapes of the outputs."""
    elimination: Elimination
    record: Callable[["OpCall", str, dict[int, int]], None]
    assume: Callable[[str], None]
    """Records an assumption about the inputs on which the proof depends."""
    floating: bool = True
    """True if the first output has a floating-point type."""
    module: str = ""
    where: str = ""
    read: frozenset[int] | None = None
    """Indices of the outputs that another node reads; None if unknown."""
    arguments: tuple[object, ...] = ()
    """The graph's nodes and constants that are the positional arguments."""
    shared: frozenset[str] = frozenset()
    """Names of values that several operations read."""
    graphs: tuple[Any, ...] = ()
    """Graphs among the arguments, in order, of an operation that takes functions."""

    def is_trivial(self, value: NodeValue, axis: int) -> bool:
        """Test whether an axis of the first argument has one entry at every input, so that every shift is constant along
        it."""
        axis %= len(value.shape)
        return value.shape[axis] == 1 and has_fixed_size(self.arguments[0] if self.arguments else None, axis)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the only or first output."""
        return self.shapes[0]

    def demand_unchanged(self, *values: NodeValue | None) -> None:
        """Demand that these values do not change at all."""
        for value in values:
            if value is not None:
                self.demand_zero(value.shift)
                for data_shift in value.data_shifts:
                    self.demand_zero(data_shift.source)
                for shift in value.masked.shifts if value.masked is not None else ():
                    self.demand_zero(shift)

    def demand_zero(self, shift: Shift) -> None:
        """Demand that a shift vanishes."""
        self._demand(shift, None)

    def demand_constant(self, shift: Shift, axes: Sequence[int]) -> Shift:
        """Demand that a shift is constant along all of these axes together.

        Along axes of size 1 this is always true and proves nothing about longer inputs, so the shift must vanish
        instead.

        Returns:
            The shift in the coordinates that are free afterwards.
        """
        axes = [axis % len(shift.shape) for axis in axes]
        if all(shift.shape[axis] == 1 for axis in axes):
            self.demand_zero(shift)
        else:
            self._demand(shift, axes)
        return self.current(shift)

    def demand_constant_value(self, value: NodeValue, axes: Sequence[int]) -> NodeValue:
        """Demand that the shift and the data-dependent shifts of a value are constant along these axes.

        Returns:
            The value in the coordinates that are free afterwards.
        """
        axes = [axis % len(value.shape) for axis in axes]
        if value.shift:
            self.demand_constant(value.shift, axes)
        kept = []
        for each in value.data_shifts:
            # A data-dependent shift is one unknown linear map of its source, the same for all entries of a named axis:
            # it is constant there if the source is. Along any other axis nothing is known, and only a source of zero is
            # constant.
            if all(axis in each.axes for axis in axes):
                self.demand_constant(each.source, [each.axes[axis] for axis in axes])
            elif each.relaxation is not None and all(
                axis in each.relaxation.axes or axis in each.axes for axis in axes
            ):
                each = self._relaxed(value.shape, each, axes)
            else:
                self.demand_zero(each.source)
            kept.append(each)
        return replace(value, data_shifts=tuple(kept)).updated(self.current)

    def _relaxed(self, shape: tuple[int, ...], data_shift: DataShift, axes: Sequence[int]) -> DataShift:
        """Impose the weaker demand of a relaxation. Afterwards the shift is constant along the axes, which a new axis
        of its source expresses."""
        if all(shape[axis] == 1 for axis in axes) or data_shift.relaxation is None:
            self.demand_zero(data_shift.source)
            return data_shift
        self.demand_zero(data_shift.relaxation.shift)
        others = [axis for axis in axes if axis in data_shift.axes]
        if others:
            self.demand_constant(data_shift.source, [data_shift.axes[axis] for axis in others])
        # The demand above makes the shift constant along these axes, although its source has none of them. An axis of
        # one entry in the source says so from here on; the labels of `product` no longer fit.
        new = [axis for axis in axes if axis not in data_shift.axes]
        source = broadcast(data_shift.source, (*(shape[axis] for axis in new), *data_shift.source.shape))
        old_axes = {axis: own + len(new) for axis, own in data_shift.axes.items()}
        return replace(
            data_shift,
            source=source,
            axes=old_axes | {axis: at for at, axis in enumerate(new)},
            relaxation=None,
            product=None,
        )

    def without_data_shifts(self, value: NodeValue) -> NodeValue:
        """Demand that the sources of all data-dependent shifts vanish, and return the value without these shifts."""
        for each in value.data_shifts:
            self.demand_zero(each.source)
        return replace(value, data_shifts=()).updated(self.current)

    def current(self, shift: Shift) -> Shift:
        """Express a shift in the coordinates that are still free."""
        return self.elimination.current(shift)

    def unmoved(self, at: int = 0) -> Output:
        """Return an output that does not shift."""
        return Output(zero_shift(self.shapes[at]))

    def all_unmoved(self) -> list[Output]:
        """Return outputs none of which shifts."""
        return [self.unmoved(at) for at in range(len(self.shapes))]

    def _demand(self, shift: Shift, axes: Sequence[int] | None) -> None:
        taken: dict[int, int] = {}

        def note(block: int, freedom: int) -> None:
            if freedom:
                taken[block] = taken.get(block, 0) + freedom

        self.elimination.demand(shift, axes, note)
        if taken:
            # Only a demand that takes something is a blocker: most demands find nothing left to take.
            text = "unchanged" if axes is None else f"constant along axis {', '.join(map(str, axes))}"
            self.record(self, text, taken)


def default_rule(call: OpCall, *args: Any, **kwargs: Any) -> list[Output]:
    """Demand that no input changes; then no output does. Sound for every deterministic operation."""
    call.demand_unchanged(*values_in(args), *values_in(kwargs))
    return call.all_unmoved()
