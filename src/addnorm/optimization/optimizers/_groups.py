"""Parameter groups with and without weight decay.

A parameter is a matrix if its role is that of a matrix (embedding, head or hidden matrix, see `addnorm.roles`) and it is not
marked `no_decay`. All others act element by element: biases, gains, learned scalars, tables, and parameters without a
declared role. A module marks a matrix by its name in a class attribute, which copies of the model keep:

    class Fixed(nn.Linear):
        no_decay = ("weight",)

A parameter with a true attribute `no_decay` is marked too, but `copy.deepcopy` drops such attributes.
"""

from typing import Literal, TypedDict

from torch import nn

from addnorm.roles import MATRIX_ROLES, roles

DecayOn = Literal["matrices", "everything"]
Role = Literal["matrix", "elementwise"]


class Group(TypedDict):
    """A parameter group, as `OptimizerSpec.build` takes it."""

    params: list[nn.Parameter]
    weight_decay: float
    role: Role
    """The role of the parameters in their layer, which scales the steps of Tiger."""


def parameter_groups(model: nn.Module, *, weight_decay: float, decay_on: DecayOn) -> list[Group]:
    """Sort the trainable parameters, each once (tied ones too) and in the model's order, into matrices and the others.

    Args:
        model: the model.
        weight_decay: weight decay of the parameters that decay.
        decay_on: `matrices`: the other parameters do not decay; `everything`: all parameters do.

    Raises:
        InputError: a module declares a role for a parameter that it does not have, or an unknown role.
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
