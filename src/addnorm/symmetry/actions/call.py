"""One operation of the graph: its arguments as numbers and as states, by their names in the operation's schema."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from addnorm.redundancy.execution.operation_names import name_of
from addnorm.symmetry.actions.system import NoRule, System
from addnorm.symmetry.actions.values import Fixed, State, Value, Weight


@dataclass(frozen=True)
class Operand:
    """A tensor argument."""

    number: Tensor
    """Its numbers at the generic point, in float64 where they are not integers."""
    state: State

    @property
    def constant(self) -> bool:
        """True for data on which neither parameters nor real-valued inputs have an effect."""
        return isinstance(self.state, Fixed) and self.state.constant

    def rearranged(self, how: Callable[[Tensor], Tensor]) -> "Operand":
        """The argument with its entries in another order or form; see `Value.rearranged`."""
        state = self.state
        if isinstance(state, Value):
            state = state.rearranged(how)
        elif isinstance(state, Weight):
            state = Weight(how(torch.from_numpy(np.array(state.ids))).numpy())
        return Operand(how(self.number), state)


@dataclass(frozen=True)
class Call:
    """An operation and its arguments."""

    system: System
    target: Any
    named: dict[str, Any]
    """Arguments by name; tensors are `Operand`s, also inside of lists."""
    result: Any
    """The numbers that it returns."""

    @property
    def name(self) -> str:
        """The operation's name without the overload."""
        return name_of(self.target)

    def operand(self, name: str) -> Operand:
        """Return a tensor argument; a Python number is a constant tensor.

        Raises:
            NoRule: it is neither.
        """
        given = self.named.get(name)
        if isinstance(given, Operand):
            return given
        if isinstance(given, int | float):
            return Operand(torch.tensor(float(given), dtype=torch.float64), Fixed(constant=True))
        raise NoRule

    def optional(self, name: str) -> Operand | None:
        """Return a tensor argument, or None."""
        return self.operand(name) if self.named.get(name) is not None else None

    def operands(self) -> list[Operand]:
        """All tensor arguments."""
        collected: list[Operand] = []
        for given in self.named.values():
            collected += [
                each for each in (given if isinstance(given, list | tuple) else [given]) if isinstance(each, Operand)
            ]
        return collected

    def run(self, replaced: Callable[[Operand], Tensor]) -> Any:
        """Call the operation on other tensors."""

        def plain(given: Any) -> Any:
            if isinstance(given, Operand):
                return replaced(given)
            return [plain(each) for each in given] if isinstance(given, list | tuple) else given

        arguments = {name: plain(given) for name, given in self.named.items()}
        schema = self.target._schema.arguments
        positional = [arguments[each.name] for each in schema if not each.kwarg_only and each.name in arguments]
        keywords = {each.name: arguments[each.name] for each in schema if each.kwarg_only and each.name in arguments}
        return self.target(*positional, **keywords)


Rule = Callable[[Call], State]
RULES: dict[str, Rule] = {}
"""Rules by the operation's name."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of operations."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def require_value(state: State) -> Value:
    """Return a value.

    Raises:
        NoRule: the state is another.
    """
    if not isinstance(state, Value):
        raise NoRule
    return state
