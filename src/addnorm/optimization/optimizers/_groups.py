"""Parameter groups with and without weight decay.

A parameter is a matrix if its role is that of a matrix (embedding, head or hidden matrix, see `addnorm.roles`) and it is not
marked `no_decay`. All others act element by element: biases, gains, learned scalars, tables, and parameters without a
declared role. A module marks a matrix by its name in a class attribute, which copies of the model keep:

    class Fixed(nn.Linear):
        no_decay = ("weight",)

A parameter with a true attribute `no_decay` is marked too, but `copy.deepcopy` drops such attributes.
"""

from collections.abc import Collection, Mapping
from typing import Literal, NotRequired, TypedDict

from torch import nn

from addnorm.roles import MATRIX_ROLES, ParameterRole, roles

DecayOn = Literal["matrices", "everything"]
"""The parameters that decay.

Example:
    >>> decay_on: DecayOn = "everything"
    >>> len(parameter_groups(nn.Linear(2, 3), weight_decay=0.1, decay_on=decay_on))
    2
"""
Role = Literal["hidden_matrix", "matrix", "elementwise"]
"""Use of the parameters of a group.

Example:
    >>> [group["role"] for group in parameter_groups(nn.Linear(2, 3), weight_decay=0.1, decay_on="matrices")]
    ['matrix', 'elementwise']
"""


class Group(TypedDict):
    """A parameter group, as `OptimizerSpec.build` takes it.

    Example:
        >>> group = Group(params=list(nn.Linear(2, 3).parameters()), weight_decay=0.1, role="matrix")
        >>> group["weight_decay"]
        0.1
    """

    params: list[nn.Parameter]
    weight_decay: float
    role: Role
    """The role of the parameters in their layer, which scales the steps of Tiger. `hidden_matrix` only where an optimizer
    treats those unlike embeddings and the head; otherwise they are matrices too."""
    rate: NotRequired[float]
    """Factor of the learning rate; 1 if it is not there."""


def parameter_groups(
    model: nn.Module, *, weight_decay: float, decay_on: DecayOn, apart: Collection[ParameterRole] = ()
) -> list[Group]:
    """Sort the trainable parameters, each once (tied ones too) and in the model's order, into matrices and the others.

    Args:
        model: the model.
        weight_decay: weight decay of the parameters that decay.
        decay_on: `matrices`: the other parameters do not decay; `everything`: all parameters do.
        apart: `hidden_matrix` gives those a group apart from embeddings and the head.

    Raises:
        InputError: a module declares a role for a parameter that it does not have, or an unknown role.

    Example:
        >>> groups = parameter_groups(nn.Linear(2, 3), weight_decay=0.1, decay_on="matrices")
        >>> [(group["role"], group["weight_decay"]) for group in groups]
        [('matrix', 0.1), ('elementwise', 0.0)]
    """
    # By identity of the parameter, not by name: tied matrices have several names, and a mark on one of them holds for
    # all.
    marked = _marked(model)
    by_role: dict[Role, list[nn.Parameter]] = {"hidden_matrix": [], "matrix": [], "elementwise": []}
    role_of = roles(model)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            marks = id(parameter) in marked or getattr(parameter, "no_decay", False)
            role: Role = "matrix" if role_of[name] in MATRIX_ROLES and not marks else "elementwise"
            if role == "matrix" and role_of[name] == "hidden_matrix" in apart:
                role = "hidden_matrix"
            by_role[role].append(parameter)
    return [
        Group(
            params=params,
            weight_decay=0.0 if role == "elementwise" and decay_on == "matrices" else weight_decay,
            role=role,
        )
        for role, params in by_role.items()
        if params
    ]


def with_rates(groups: list[Group], factors: Mapping[int, tuple[float, float]]) -> list[Group]:
    """Divide groups so that all parameters of a group have the same factors of rate and decay.

    Args:
        groups: from `OptimizerSpec.groups`.
        factors: of the learning rate and of the weight decay, by the parameter's `id`; 1 for those that it lacks.

    Example:
        >>> layer = nn.Linear(2, 3)
        >>> groups = parameter_groups(layer, weight_decay=0.1, decay_on="matrices")
        >>> [group.get("rate", 1) for group in with_rates(groups, {id(layer.weight): (0.5, 2.0)})]
        [0.5, 1]
    """
    divided: list[Group] = []
    for group in groups:
        by_factor: dict[tuple[float, float], list[nn.Parameter]] = {}
        for parameter in group["params"]:
            by_factor.setdefault(factors.get(id(parameter), (1.0, 1.0)), []).append(parameter)
        for (rate, decay), params in by_factor.items():
            part: Group = {**group, "params": params, "weight_decay": group["weight_decay"] * decay}
            divided.append(part if rate == 1 else {**part, "rate": rate})
    return divided


def _marked(model: nn.Module) -> set[int]:
    marked: set[int] = set()
    for module in model.modules():
        for name in getattr(type(module), "no_decay", ()):
            marked.add(id(getattr(module, name)))
    return marked
