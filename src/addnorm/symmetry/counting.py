"""Count of the numbers of a group of parameters that can matter: the numerical method alone, for many groups at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from addnorm.errors import InputError, UnknownName
from addnorm.redundancy.algebra.rank import svd
from addnorm.redundancy.execution.cases import Cases
from addnorm.redundancy.execution.checks import check_inputs, check_model
from addnorm.redundancy.execution.copies import PROCESS_LOCK, device_of
from addnorm.redundancy.execution.inputs import Inputs, bind
from addnorm.redundancy.graph.export import NotExported, export
from addnorm.symmetry.actions.equations import IllConditioned
from addnorm.symmetry.families import COUNTED
from addnorm.symmetry.numeric.jacobian import Jacobian, generic_point, jacobian
from addnorm.symmetry.numeric.null_space import confirmed, moved_numbers, null_space
from addnorm.symmetry.structure import columns_of, structure

LARGEST = 5000
"""Largest number of parameters: the null space costs their number cubed."""
_CLEAR = 1e3


@dataclass(frozen=True, kw_only=True)
class LearnedNumbers:
    """The numbers of a group of parameters."""

    numbers: int
    unread: int
    """Numbers of them on which no output depends."""
    matter: int
    """Independent directions of them that no other parameter can absorb."""
    families: tuple[str, ...] = ()
    """Families with directions that move the group, if they were asked for and the model exports."""

    @property
    def gauge(self) -> int:
        """Directions that other parameters, or others of the group, can absorb."""
        return self.numbers - self.unread - self.matter


def learned_numbers(
    model: nn.Module,
    inputs: Any,
    groups: Mapping[str, Sequence[str]],
    *,
    upright: str | None = None,
    name_families: bool = False,
    in_turn: bool = False,
) -> dict[str, LearnedNumbers]:
    """Count, at generic weights, the directions of each group that the other parameters cannot absorb.

    Args:
        model: any module with at most 5000 floating-point numbers in its parameters.
        inputs: as for `addnorm.symmetries`.
        groups: names of parameters, by the name of the group.
        upright: a table whose rows may not be rotated together. With that of the tokens, a rotation of the stream, which
            rewrites the whole model, does not count against what reads the stream.
        name_families: also name the families that move each group, by the structural method.
        in_turn: hold a group that others can absorb whole fixed for the groups after it. Two groups that can only absorb each
            other are then not both called free.

    Raises:
        InputError: the model cannot be analysed, the inputs do not fit, or no clear gap separates what can matter.
        UnknownName: the model has no such parameter.
    """
    check_model(model)
    bound = bind(inputs)
    check_inputs(bound)
    columns = columns_of(model)
    for name in (*([upright] if upright else []), *(each for names in groups.values() for each in names)):
        if name not in columns:
            raise UnknownName("parameter", name, list(columns))
    count = max((each.stop for each in columns.values()), default=0)
    if not 0 < count <= LARGEST:
        raise InputError(f"expected a model with 1 to {LARGEST} floating-point numbers in its parameters, got {count}.")
    with PROCESS_LOCK, torch.autocast(device_of(model).type, enabled=False), torch.inference_mode(False):
        point = generic_point(model)
        derivative = jacobian(point, Cases.of(point, bound, "logits"), "logits")
        proven = _proven(model, point, bound, derivative) if name_families else {}
        matrix = derivative.matrix
        if upright is not None:
            matrix = torch.cat([matrix, _turned(point.get_parameter(upright).detach(), columns[upright], matrix)])
    space = null_space(matrix, derivative.unread)
    if space.gap < _CLEAR:
        raise InputError(
            f"expected a clear gap between directions that change the output and those that do not, got {space.gap:.0e} in "
            f"{count} numbers. Fewer layers have a clearer one."
        )
    basis = space.basis
    made = {}
    for group, names in groups.items():
        rows = torch.cat([basis[:0], *(basis[columns[name]] for name in names)])
        unread = sum(int(derivative.unread[columns[name]].sum()) for name in names)
        absorbed = moved_numbers(rows)
        if in_turn and absorbed == len(rows) - unread:
            basis = basis @ svd(rows, full_matrices=True)[2][absorbed:].T
        named = tuple(
            family
            for family, tangents in proven.items()
            if any(bool((tangents[columns[name]].abs() > 1e-9 * tangents.abs().amax(0)).any()) for name in names)
        )
        made[group] = LearnedNumbers(
            numbers=len(rows), unread=unread, matter=len(rows) - unread - absorbed, families=named
        )
    return made


def _proven(model: nn.Module, point: nn.Module, bound: Inputs, derivative: Jacobian) -> dict[str, Tensor]:
    """The proven directions that the Jacobian confirms, [column, direction], by family; none if the model does not export."""
    try:
        made = structure(export(model, bound, observe="logits", training=False), point, bound)
    except (NotExported, IllConditioned):
        return {}
    tangents = made.tangents(made.directions)
    tangents[derivative.unread] = 0
    kept = confirmed(derivative.matrix, tangents) & (tangents != 0).any(0)
    families: dict[str, list[Tensor]] = {rule.name: [] for rule in COUNTED}
    for at in torch.nonzero(kept).flatten().tolist():
        families[made.directions[at].family].append(tangents[:, at])
    return {family: torch.stack(each, 1) for family, each in families.items() if each}


def _turned(table: Tensor, at: slice, matrix: Tensor) -> Tensor:
    """Rows that vanish on changes of a table which have no rotation in them: Eᵀ dE is symmetric."""
    rows, width = table.shape
    first, second = torch.triu_indices(width, width, 1)
    made = torch.zeros(len(first), rows, width, dtype=torch.float64)
    number = torch.arange(len(first))
    made[number, :, second] = table[:, first].T
    made[number, :, first] -= table[:, second].T
    whole = torch.zeros(len(first), matrix.shape[1], dtype=torch.float64)
    whole[:, at] = made.reshape(len(first), -1) * float(matrix[:, at].norm(dim=0).mean() / table.norm())
    return whole
