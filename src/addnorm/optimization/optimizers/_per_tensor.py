"""Base of optimizers that update one parameter after the other."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from addnorm.optimization.optimizers._eager import EagerOptimizer


class PerTensor(EagerOptimizer):
    """An optimizer whose step calls `update` for every parameter that has a gradient.

    Args:
        groups: the parameters in groups, see `OptimizerSpec.groups`.
        defaults: settings of groups that do not have their own.
    """

    def __init__(self, groups: Any, defaults: dict[str, Any]) -> None:
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # no closure is run
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            self.begin(group)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, parameter.grad, group, self.state[parameter])

    def begin(self, group: dict[str, Any]) -> None:
        """Prepare a group's step, for what all of its parameters share."""

    @abstractmethod
    def update(self, parameter: Tensor, grad: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        """Change a parameter in place.

        Args:
            parameter: the parameter.
            grad: its gradient, which is not changed.
            group: its group, with the step's `lr`.
            state: its state, empty in its first step; tensors and plain numbers.
        """


def running_mean(state: dict[str, Any], name: str, value: Tensor, decay: float) -> Tensor:
    """Update `state[name] = decay · state[name] + (1 - decay) · value`, which starts at zero, and return it."""
    if name not in state:
        state[name] = torch.zeros_like(value)
    mean: Tensor = state[name].lerp_(value, 1 - decay)
    return mean


def adam_direction(state: dict[str, Any], grad: Tensor, betas: tuple[float, float], eps: float) -> Tensor:
    """Adam's step for a learning rate of one: the mean of the gradient by the root of its mean square, both unbiased."""
    # A plain number and not a tensor: the divisors below are computed on the host, and no step waits for the device.
    state["step"] = state.get("step", 0) + 1
    mean = running_mean(state, "mean", grad, betas[0]) / (1 - betas[0] ** state["step"])
    square = running_mean(state, "square", grad.square(), betas[1]) / (1 - betas[1] ** state["step"])
    return mean.div_(square.sqrt_().add_(eps))
