r"""Lion: the sign of an interpolation between momentum and gradient.

    theta = theta - lr sign(beta_1 m + (1 - beta_1) g) - lr wd theta
    m = beta_2 m + (1 - beta_2) g

Why: one state per parameter, and steps of one size for every entry, as in Tiger, whose two beta are equal.

Source: Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", arXiv:2302.06675, algorithm 2.
Differs from the source: nothing. The defaults are AdamW's with a third of the rate and three times the decay, which section 5
of the source advises.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from addnorm.fields import require
from addnorm.optimization.optimizers import Group, OptimizerSpec
from addnorm.optimization.optimizers._per_tensor import PerTensor, running_means


@dataclass(frozen=True, kw_only=True)
class LionSpec(OptimizerSpec):
    """Spec of Lion.

    Raises:
        FieldError: a field is out of range.
    """

    entrywise: ClassVar[bool] = True
    scales: ClassVar[bool] = True

    learning_rate: float = 1e-4
    weight_decay: float = 0.3
    betas: tuple[float, float] = (0.9, 0.99)
    """Weight of the momentum in the step, and its decay rate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "betas", all(0 <= beta < 1 for beta in self.betas), "numbers from 0 to below 1")

    def build(self, groups: list[Group]) -> "Lion":
        """Construct the optimizer."""
        return Lion(groups, {"lr": self.learning_rate, "betas": self.betas, "weight_decay": 0.0})


class Lion(PerTensor):
    """Lion."""

    def update(self, parameter: Tensor, grad: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        """Change a parameter in place."""
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        first, second = group["betas"]
        step = torch.lerp(grad, state["momentum"], first).sign_()
        parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(step, alpha=group["lr"])
        state["momentum"].lerp_(grad, 1 - second)

    def update_together(
        self, parameters: list[Tensor], grads: list[Tensor], group: dict[str, Any], states: list[dict[str, Any]]
    ) -> None:
        """Change parameters of one group in place."""
        first, second = group["betas"]
        for parameter, state in zip(parameters, states, strict=True):
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter)
        steps = torch._foreach_lerp(grads, [state["momentum"] for state in states], first)
        torch._foreach_sign_(steps)
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_sub_(parameters, steps, alpha=group["lr"])
        running_means(states, "momentum", grads, second)
