"""Which parameters decay.

Rule: a parameter is a matrix iff it has at least two dimensions and is not marked `no_decay`; everything else acts
element by element (biases, norm gains and shifts, learned scalars). A module marks by listing its own parameters' names
in a class attribute, which copies and reloads of the model keep:

    class PairWeights(nn.Module):
        no_decay = ("alpha",)  # (layer, layer) table of learned scalars

A parameter with an attribute `no_decay` that is true counts as marked too, but `copy.deepcopy` drops such attributes.
"""

from typing import Literal, TypedDict

from torch import nn

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
    """
    marked = _marked(model)
    by_role: dict[Role, list[nn.Parameter]] = {"matrix": [], "elementwise": []}
    for parameter in model.parameters():
        if parameter.requires_grad:
            matrix = parameter.ndim >= 2 and id(parameter) not in marked and not getattr(parameter, "no_decay", False)
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
