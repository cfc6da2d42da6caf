"""Room of the optimizers: rules that turn a gradient into an update. One file each.

Weight decay is decoupled in every optimizer: a step multiplies a parameter by 1 - `decay_rate`, apart from the update of its
gradient. The two parts of a learned scalar's change can therefore be recorded separately.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from addnorm.catalogue import Spec
from addnorm.fields import require_at_least, require_positive
from addnorm.optimization.optimizers._groups import DecayOn, Group, Role, parameter_groups, with_rates

__all__ = ["DecayOn", "Group", "OptimizerSpec", "Role", "parameter_groups", "with_rates"]


@dataclass(frozen=True, kw_only=True)
class OptimizerSpec(Spec, ABC):
    """Base of every optimizer's spec.

    Raises:
        FieldError: a field is out of range.

    Example:
        >>> from addnorm.optimization.optimizers.adamw import AdamW
        >>> spec = AdamW(learning_rate=1e-3, weight_decay=0.1)
        >>> [group["weight_decay"] for group in spec.build(spec.groups(nn.Linear(2, 3))).param_groups]
        [0.1, 0.0]
    """

    entrywise: ClassVar[bool] = False
    """True if the update of an entry depends on that entry's own gradients alone, so that each rank can update its rows of a
    matrix (`training.parallel: sharded`)."""

    scales: ClassVar[bool] = False
    """True if a step moves every entry by about the learning rate, whatever the gradient's size, so that the rates of a model's
    `scaling` hold."""

    learning_rate: float
    """Peak learning rate, which the schedule's factor multiplies."""
    weight_decay: float
    """Decoupled weight decay: a step removes the share learning rate · weight_decay of the parameter."""
    decay_on: Literal["matrices", "everything"] = "matrices"
    """The parameters that decay. `matrices`: embeddings, the head and hidden matrices, by the roles that modules declare, but
    not biases, norms, learned scalars and tables. `everything`: all parameters, as in Kuang (2025)."""

    def __post_init__(self) -> None:
        require_positive(self, "learning_rate")
        require_at_least(self, 0, "weight_decay")

    def groups(self, model: nn.Module) -> list[Group]:
        """The model's parameters in groups with the weight decay of this spec."""
        return parameter_groups(model, weight_decay=self.weight_decay, decay_on=self.decay_on)

    @abstractmethod
    def build(self, groups: list[Group]) -> torch.optim.Optimizer:
        """Construct the optimizer. The training loop sets `group["lr"]` before every step, times the group's `rate`.

        The optimizer must also accept parameters on the meta device, where the bytes of its state are counted.
        """

    def averaged(self, optimizer: torch.optim.Optimizer) -> AbstractContextManager[None]:
        """Give the parameters, during a block, the values that are evaluated and kept: those that are trained, unless the
        optimizer keeps an average of them."""
        return nullcontext()

    def decay_rate(self, parameter: torch.Tensor, group: Mapping[str, Any]) -> float | torch.Tensor:
        """Share of a parameter that weight decay removes in the next step, proportional to the learning rate. One that depends
        on the parameter's values is a scalar tensor on its device, so that no step waits for the device.

        Args:
            parameter: the parameter before the step.
            group: its group in `optimizer.param_groups`, with the step's `lr`.
        """
        return float(group["lr"] * group["weight_decay"])
