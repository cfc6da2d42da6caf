r"""Schedule-free AdamW: gradients at an interpolation between the iterate z and its average x, which is the result.

    y = (1 - beta_1) z + beta_1 x,    g at y,    v = beta_2 v + (1 - beta_2) g^2
    z = (1 - lr wd) z - lr g / (sqrt(v / (1 - beta_2^t)) + eps)
    x = (1 - c) (1 - lr wd) x + c z,    c = lr_max^2 / sum of lr_max^2 so far

Why: no schedule has to know the length of the run; the average at any step is near the best for that length. Use the schedule
`constant`, whose warm-up it needs.

Source: Defazio et al. 2024, "The Road Less Scheduled", arXiv:2405.15682, algorithm 1;
https://github.com/facebookresearch/schedule_free.
Differs from the source: weight decay multiplies x, y and z alike, apart from the gradient, as in every optimizer here; the
source adds wd y to the step of z. Without weight decay they are the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from addnorm.fields import require, require_positive
from addnorm.optimization.optimizers import Group, OptimizerSpec
from addnorm.optimization.optimizers._per_tensor import PerTensor, running_mean, running_means, unbiased


@dataclass(frozen=True, kw_only=True)
class ScheduleFreeSpec(OptimizerSpec):
    """Spec of schedule-free AdamW.

    Raises:
        FieldError: a field is out of range.
    """

    entrywise: ClassVar[bool] = True
    scales: ClassVar[bool] = True

    learning_rate: float = 1e-3
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.999)
    """Share of the average at the place of the gradient, and decay rate of the mean square."""
    eps: float = 1e-8
    """Added to the denominator for numerical stability."""

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = 0 < self.betas[0] < 1 and 0 <= self.betas[1] < 1
        require(self, "betas", valid, "a number between 0 and 1, and one from 0 to below 1")
        require_positive(self, "eps")

    def build(self, groups: list[Group]) -> "ScheduleFree":
        """Construct the optimizer."""
        defaults = {"lr": self.learning_rate, "betas": self.betas, "eps": self.eps, "weight_decay": 0.0}
        return ScheduleFree(groups, {**defaults, "largest_lr": 0.0, "weights": 0.0, "share": 1.0})

    @contextmanager
    def averaged(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Give the parameters the values x, and y again after the block."""
        trained = [(p, p.detach().clone()) for group in optimizer.param_groups for p in group["params"]]
        with torch.no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    # y = (1 - b) z + b x, solved for x in place. Afterwards y is copied back, not computed back: rounding
                    # would move it at every evaluation, and a run would depend on how often it is evaluated.
                    if "z" in optimizer.state[parameter]:
                        parameter.lerp_(optimizer.state[parameter]["z"], 1 - 1 / group["betas"][0])
            try:
                yield
            finally:
                for parameter, value in trained:
                    parameter.copy_(value)


class ScheduleFree(PerTensor):
    """Schedule-free AdamW. Parameters hold y; x follows from y and z."""

    def begin(self, group: dict[str, Any]) -> None:
        """Update the share c of the newest z in the average."""
        group["largest_lr"] = max(group["largest_lr"], group["lr"])
        group["weights"] += group["largest_lr"] ** 2
        group["share"] = group["largest_lr"] ** 2 / group["weights"] if group["weights"] else 0.0

    def update(self, parameter: Tensor, grad: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        """Change a parameter in place."""
        (first, second), rate, share = group["betas"], group["lr"], group["share"]
        if "z" not in state:
            state["z"] = parameter.detach().clone()
        state["step"] = state.get("step", 0) + 1
        square = running_mean(state, "square", grad.square(), second) / (1 - second ** state["step"])
        step = grad / square.sqrt_().add_(group["eps"])
        for tensor in (parameter, state["z"]):
            tensor.mul_(1 - rate * group["weight_decay"])
        # y of the new x and z, without x: y is a mean of both, and so is its move.
        parameter.lerp_(state["z"], share).sub_(step, alpha=rate * (1 - first * (1 - share)))
        state["z"].sub_(step, alpha=rate)

    def update_together(
        self, parameters: list[Tensor], grads: list[Tensor], group: dict[str, Any], states: list[dict[str, Any]]
    ) -> None:
        """Change parameters of one group in place."""
        (first, second), rate, share = group["betas"], group["lr"], group["share"]
        for parameter, state in zip(parameters, states, strict=True):
            if "z" not in state:
                state["z"] = parameter.detach().clone()
            state["step"] = state.get("step", 0) + 1
        iterates = [state["z"] for state in states]
        squares = running_means(states, "square", list(torch._foreach_mul(grads, grads)), second)
        roots = unbiased(states, squares, second)
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["eps"])
        steps = torch._foreach_div(grads, roots)
        torch._foreach_mul_(parameters, 1 - rate * group["weight_decay"])
        torch._foreach_mul_(iterates, 1 - rate * group["weight_decay"])
        torch._foreach_lerp_(parameters, iterates, share)
        torch._foreach_sub_(parameters, steps, alpha=rate * (1 - first * (1 - share)))
        torch._foreach_sub_(iterates, steps, alpha=rate)
