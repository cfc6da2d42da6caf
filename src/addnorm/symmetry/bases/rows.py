"""Rows of several tables that the inputs only read together: what one table's rows gain, another's lose (`look_ups`).

    rows    n in N, J n = 0: rows have no part along what is left of n without its mean over each table

A constant of a whole table, which moves on by itself, has no such part, and a change of the channels' basis keeps it zero: the
representative is unique beside both.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, fx, nn

from addnorm.redundancy.execution.copies import copy_of
from addnorm.redundancy.execution.fresh_inputs import InputTemplate, accepts, cast, like
from addnorm.redundancy.execution.inputs import Inputs
from addnorm.redundancy.execution.observation import Observe
from addnorm.redundancy.execution.operation_names import name_of
from addnorm.redundancy.graph.export import Program
from addnorm.symmetry.actions.equations import Numbers
from addnorm.symmetry.actions.look_ups import inputs_by_rows
from addnorm.symmetry.actions.propagation import rows_read_together
from addnorm.symmetry.bases.change import Weights


@dataclass(frozen=True)
class TradedRows:
    """Constants that the tables of one sum may trade."""

    directions: Mapping[str, Tensor]
    """N, float64[row, direction], by table."""
    count: int
    width: int

    def size(self, centred: Set[str]) -> int:
        """The number of directions, but for those of means that norms remove of every row of some tables."""
        return self.count * (self.width - (not centred.isdisjoint(self.directions)))

    def settle(self, weights: Weights) -> None:
        """Take all parts out, in place."""
        known = torch.cat([weights[name] for name in self.directions])
        whole = torch.cat(list(self.directions.values()))
        apart = torch.cat([each - each.mean(0) for each in self.directions.values()])
        self.trade(-torch.linalg.solve(apart.T @ whole, apart.T @ known), weights)

    def move_at_random(self, weights: Weights, generator: torch.Generator) -> None:
        """Move along every direction, in place."""
        self.trade(torch.randn(self.count, self.width, generator=generator, dtype=torch.float64), weights)

    def trade(self, constants: Tensor, weights: Weights) -> None:
        """Trade constants, [direction, channel], in place."""
        for name, each in self.directions.items():
            weights[name] += each @ constants


def traded_rows(program: Program, model: nn.Module, inputs: Inputs, observe: Observe) -> list[TradedRows]:
    """Return what may be traded in every sum of look-ups; nothing of a model on the meta device, which reads no rows."""
    held = (*model.parameters(), *model.buffers())
    look_ups = [node for node in program.nodes if name_of(node.target) == "embedding"]
    if len(look_ups) < 2 or any(each.is_meta for each in held):
        return []
    copied = copy_of(model, torch.float64).eval()
    template = InputTemplate.of(copied, cast(inputs, torch.float64))
    if not accepts(copied, template.fresh(1), observe):
        return []
    drawn = [like(each, inputs) for each in inputs_by_rows(template)]
    made = [_of_sum(program, traded) for traded in rows_read_together(program, copied, drawn).traded]
    return [each for each in made if each is not None]


def _of_sum(program: Program, traded: Sequence[Mapping[fx.Node, Numbers]]) -> TradedRows | None:
    """Find what the tables of one sum may trade; None where there is nothing, or something else reads one of them."""
    look_ups = list(dict.fromkeys(node for each in traded for node in each))
    tables = [node.all_input_nodes[0] for node in look_ups]
    names = [program.parameters.get(each.name, "") for each in tables]
    if not names or any(
        list(program.parameters.values()).count(name) != 1 or len(table.users) != 1
        for name, table in zip(names, tables, strict=True)
    ):
        return None
    rows, width = [table.meta["val"].shape[0] for table in tables], tables[0].meta["val"].shape[1]
    directions = {
        name: torch.from_numpy(np.stack([each.get(node, np.zeros(count)) for each in traded], 1))
        for name, node, count in zip(names, look_ups, rows, strict=True)
    }
    return TradedRows(directions, len(traded), width)
