"""Room of the optimizers: how a gradient becomes a move.

Weight decay is decoupled everywhere: in each step a parameter loses a share of itself (`decay_rate`), apart from what
its gradient does. So for every learned scalar the two can be told apart.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from addnorm.catalogue import Spec
from addnorm.errors import InputError
from addnorm.optimization.optimizers._groups import DecayOn, Group, Role, parameter_groups

__all__ = ["DecayOn", "Group", "OptimizerSpec", "Role", "parameter_groups"]


@dataclass(frozen=True, kw_only=True)
class OptimizerSpec(Spec, ABC):
    """Base of every optimizer's configuration.

    Raises:
        InputError: a field is out of range.
    """

    learning_rate: float
    """Peak learning rate: the schedule's factor multiplies it."""
    weight_decay: float
    """Decoupled: a step takes learning rate · weight_decay of the parameter away."""
    decay_on: Literal["matrices", "everything"] = "matrices"
    """What decays: `matrices` (embeddings, the head, hidden matrices) leaves out biases, norms, learned scalars and tables,
    by the roles that modules declare; `everything` is Kuang's (2025) set-up."""

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate must be positive, got {self.learning_rate}.")
        if not self.weight_decay >= 0:
            raise InputError(f"weight_decay must be 0 or more, got {self.weight_decay}.")

    def groups(self, model: nn.Module) -> list[Group]:
        """The model's parameters, sorted by what decays under this spec."""
        return parameter_groups(model, weight_decay=self.weight_decay, decay_on=self.decay_on)

    @abstractmethod
    def build(self, groups: list[Group]) -> torch.optim.Optimizer:
        """The optimizer. The training loop sets `group["lr"]` before every step.

        It must be able to step parameters on the meta device too, where a plan counts the bytes of its state.
        """

    def decay_rate(self, parameter: torch.Tensor, group: Mapping[str, Any]) -> float:
        """Share of the parameter that weight decay takes away in a step begun in the present state.

        Proportional to the learning rate.

        Args:
            group: the parameter's entry in `optimizer.param_groups`, with this step's `lr`.
        """
        return float(group["lr"] * group["weight_decay"])


def require_share(name: str, value: float) -> None:
    """Raises:
    InputError: a decay of running averages is not in [0, 1).
    """
    if not 0 <= value < 1:
        raise InputError(f"{name} is the share of a running average that stays, from 0 to below 1; got {value}.")
