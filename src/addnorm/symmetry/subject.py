"""The analysed model with both methods' directions, for moves and for questions about single parameters."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.errors import InputError, UnknownName
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.copies import PROCESS_LOCK, copy_of
from addnorm.redundancy.execution.float64 import Float64Mode
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.graph.export import Program
from addnorm.redundancy.rewriting.audited_model import parameter_versions
from addnorm.symmetry.moves import SAME, Comparison
from addnorm.symmetry.numeric.null_space import moved_numbers
from addnorm.symmetry.structure import Structure, structure


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The model, its graph and its null space."""

    model: nn.Module
    program: Program | None
    inputs: Inputs
    """Those with which it was analysed."""
    read: tuple[Inputs, ...]
    """The longest that follow from them, with which it was exported, and others for which the equations were written."""
    drawn: tuple[Inputs, ...]
    """Further inputs, which tell what rows are read together."""
    observe: Observe
    training: bool
    null: Tensor
    """float64[column, direction]: a basis of the numerical null space."""
    unread: Tensor
    """bool[column]: numbers that no output reads."""
    columns: Mapping[str, slice]
    _known: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def effective_of(self, names: Sequence[str]) -> int:
        """See `Symmetries.effective_of`."""
        for name in names:
            if name not in self.columns:
                raise UnknownName("parameter", name, list(self.columns))
        if not names:
            return 0
        rows = torch.cat([self.null[self.columns[name]] for name in names])
        unread = sum(int(self.unread[self.columns[name]].sum()) for name in names)
        return len(rows) - unread - moved_numbers(rows)

    def move(self, family: str, index: int, amount: float) -> tuple[nn.Module, float]:
        """See `Symmetries.move`."""
        if self.program is None:
            raise InputError("expected a model that exports, got one that does not, so that no move is known for it.")
        with PROCESS_LOCK, torch.autocast("cpu", enabled=False), Float64Mode():
            own, comparison = self._at_own_weights(self.program)
            model = copy.deepcopy(comparison.model)  # after a call, which may have written weights, as RWKV's first
            families: dict[str, list[int]] = {}
            for at, each in enumerate(own.directions):
                families.setdefault(each.family, []).append(at)
            if family not in families:
                raise UnknownName("family", family, list(families))
            if not 0 <= index < len(families[family]):
                raise InputError(f"expected an index below {len(families[family])} in {family!r}, got {index}.")
            weights = {name: each.detach() for name, each in model.named_parameters()}
            direction = own.directions[families[family][index]]
            after, difference = comparison.moved(own.propagation, weights, direction, amount)
            if not difference < SAME:
                raise InputError(
                    f"expected equal outputs after a move along {family!r}, got a relative difference of {difference:.1e}. "
                    "Report this model: the rule of the family is wrong for it."
                )
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter.copy_(after.get(name, parameter))
        return model, difference

    def _at_own_weights(self, program: Program) -> tuple[Structure, Comparison]:
        """The directions at the model's own weights, and its outputs; computed anew if the weights have changed."""
        versions = parameter_versions(self.model)
        if self._known.get("versions") != versions:
            model = copy_of(self.model, torch.float64).train(self.training)
            # Not those of the longest inputs, which would follow with rows of tables that the graph does not read.
            cases = Cases.of(model, self.inputs, self.observe)
            made = structure(program, model, *self.read, drawn=self.drawn), Comparison.of(model, cases, self.observe)
            self._known.update(versions=versions, made=made)
        known: tuple[Structure, Comparison] = self._known["made"]
        return known
