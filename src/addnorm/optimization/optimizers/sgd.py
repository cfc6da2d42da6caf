r"""SGD with momentum and decoupled weight decay.

    m = mu m + g,    theta = theta - lr m - lr wd theta

Why: the reference without rescaling, in which the change of a learned scalar is proportional to its gradients.

Source: Loshchilov and Hutter 2017, arXiv:1711.05101, algorithm 1 (SGDW).
Differs from the source: the learning rate multiplies the decay and is not part of m, as in PyTorch. (torch.optim.SGD adds
the decay to the gradient, and therefore to the momentum.)
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from addnorm.fields import require
from addnorm.optimization.optimizers import Group, OptimizerSpec
from addnorm.optimization.optimizers._per_tensor import PerTensor


@dataclass(frozen=True, kw_only=True)
class Sgd(OptimizerSpec):
    """Spec of SGD.

    Raises:
        FieldError: a field is out of range.
    """

    entrywise: ClassVar[bool] = True

    learning_rate: float = 0.1
    weight_decay: float = 0.0
    momentum: float = 0.9
    """Decay rate of the momentum."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "momentum", 0 <= self.momentum < 1, "a number from 0 to below 1")

    def build(self, groups: list[Group]) -> "DecoupledSgd":
        """Construct the optimizer."""
        return DecoupledSgd(groups, lr=self.learning_rate, momentum=self.momentum)


class DecoupledSgd(PerTensor):
    """SGD whose momentum excludes the weight decay."""

    def __init__(self, groups: Any, *, lr: float, momentum: float) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})

    def update(self, parameter: Tensor, grad: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        """Change a parameter in place."""
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].mul_(group["momentum"]).add_(grad)
        parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(momentum, alpha=group["lr"])
