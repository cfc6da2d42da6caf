"""Which parameters decay.

A parameter is a matrix if its role says so (embedding, head or hidden matrix, see `addnorm.roles`) and it is not marked
`no_decay`; all others act element by element: biases, gains, learned scalars, tables, and what no module declares. A module
marks a matrix by its name in a class attribute, which copies and reloads of the model keep:

    class Fixed(nn.Linear):
        no_decay = ("weight",)

A parameter with an attribute `no_decay` that is true counts as marked too, but `copy.deepcopy` drops such attributes.
"""

from typing import Literal, TypedDict

from torch import nn

from addnorm.roles import MATRIX_ROLES, roles

DecayOn = Literal["matrices", "everything"]
Role = Literal["matrix", "elementwise"]


class Group(TypedDict):
    """One entry of what `OptimizerSpec.build` takes."""

    params: list[nn.Parameter]
    weight_decay: float
    role: Role
    """What the parameters are to the layer; Tiger scales its steps by it."""


def parameter_groups(model: nn.Module, *, weight_decay: float, decay_on: DecayOn) -> list[Group]:
    """The trainable parameters, each once (tied ones too), in the model's order: matrices, then the rest.

    Args:
        decay_on: `matrices` leaves the rest without decay; `everything` gives all of them the same.

    Raises:
        InputError: a module declares roles for parameters that it does not have, or a role that does not exist.
    """
    marked = _marked(model)
    by_role: dict[Role, list[nn.Parameter]] = {"matrix": [], "elementwise": []}
    role_of = roles(model)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            marks = id(parameter) in marked or getattr(parameter, "no_decay", False)
            matrix = role_of[name] in MATRIX_ROLES and not marks
            by_role["matrix" if matrix else "elementwise"].append(parameter)
    decays: dict[Role, bool] = {"matrix": True, "elementwise": decay_on == "everything"}
    return [
        Group(params=params, weight_decay=weight_decay if decays[role] else 0.0, role=role)
        for role, params in by_role.items()
        if params
    ]


def _marked(model: nn.Module) -> set[int]:
    marked: set[int] = set()
    for module in model.modules():
        for name in getattr(type(module), "no_decay", ()):
            marked.add(id(getattr(module, name)))
    return marked
