"""Base of optimizers that update one parameter after the other, or, on a GPU, a whole group with each operation.

`update` is the formula. `update_together` is the same with torch's operations over lists, each of which a GPU starts once for
all parameters: started one by one, they take longer to start than to compute.
"""

from abc import abstractmethod
from collections.abc import Callable
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer


class EagerOptimizer(Optimizer):
    """An optimizer that does not import Dynamo.

    torch.optim excludes the methods below from compilation, and imports Dynamo to do so when they are first called: more than
    a second in every process that trains, which is longer than the rest of its start. Uncompiled, the excluded method and
    the method itself are the same.
    """

    add_param_group = unwrap(Optimizer.add_param_group)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    state_dict = unwrap(Optimizer.state_dict)
    zero_grad = unwrap(Optimizer.zero_grad)


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
            trained = [parameter for parameter in group["params"] if parameter.grad is not None]
            # A parameter of which every rank has a share is no plain one, and torch's lists do not take it.
            if trained and all(parameter.is_cuda and type(parameter) is Parameter for parameter in trained):
                self.update_together(trained, [p.grad for p in trained], group, [self.state[p] for p in trained])
            else:
                for parameter in trained:
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

    def update_together(
        self, parameters: list[Tensor], grads: list[Tensor], group: dict[str, Any], states: list[dict[str, Any]]
    ) -> None:
        """Change parameters of one group in place, as `update` would one by one."""
        for parameter, grad, state in zip(parameters, grads, states, strict=True):
            self.update(parameter, grad, group, state)


def running_means(states: list[dict[str, Any]], name: str, values: list[Tensor], decay: float) -> list[Tensor]:
    """`running_mean` of several states."""
    for state, value in zip(states, values, strict=True):
        if name not in state:
            state[name] = torch.zeros_like(value)
    means: list[Tensor] = [state[name] for state in states]
    torch._foreach_lerp_(means, values, 1 - decay)
    return means


def unbiased(states: list[dict[str, Any]], means: list[Tensor], decay: float) -> list[Tensor]:
    """Running means that started at zero, without the weight of that start; `step` of each state counts its updates."""
    return list(torch._foreach_div(means, [1 - decay ** state["step"] for state in states]))


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


def adam_directions(
    states: list[dict[str, Any]], grads: list[Tensor], betas: tuple[float, float], eps: float
) -> list[Tensor]:
    """`adam_direction` of several gradients."""
    for state in states:
        state["step"] = state.get("step", 0) + 1
    directions = unbiased(states, running_means(states, "mean", grads, betas[0]), betas[0])
    squares = running_means(states, "square", list(torch._foreach_mul(grads, grads)), betas[1])
    roots = unbiased(states, squares, betas[1])
    torch._foreach_sqrt_(roots)
    torch._foreach_add_(roots, eps)
    torch._foreach_div_(directions, roots)
    return directions
