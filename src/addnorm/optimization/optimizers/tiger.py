r"""Tiger: the sign of the momentum, scaled by each matrix's own size.

    m = beta m + (1 - beta) g
    theta = theta - eta (sign(m) + wd theta),    eta = lr · max(RMS(theta), rms_floor)   for matrices
                                                 eta = lr / 2                            for everything else

Why: one state per parameter instead of AdamW's two, and a learning rate that is a relative step size, which transfers between
widths. Su (2023) trains its models with it.

Source: Su Jianlin 2023, "Tiger: A Tight-fisted Optimizer", https://kexue.fm/archives/9512 (update rule, learning rate
and defaults beta 0.965, weight decay 0.01, learning rate 0.001 to 0.002); code https://github.com/bojone/tiger.
Differs from the source: matrices are recognised by their roles (see parameter_groups), not by name. A matrix that starts at
zero can change, through rms_floor (in the source its step stays zero). Embeddings have one RMS per matrix, as on the page
(the code has one per row). No step is skipped for a gradient with NaN; the run is reported as failed instead. Gradients are
not accumulated in the momentum.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from addnorm.fields import require, require_at_least
from addnorm.optimization.optimizers import Group, OptimizerSpec
from addnorm.optimization.optimizers._per_tensor import PerTensor, running_mean, running_means


@dataclass(frozen=True, kw_only=True)
class TigerSpec(OptimizerSpec):
    """Spec of Tiger.

    Raises:
        FieldError: a field is out of range.
    """

    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    beta: float = 0.965
    """Decay rate of the momentum."""
    rms_floor: float = 1e-3
    """Lower bound on a matrix's RMS; 0 is the source's rule, under which a matrix of zeros never changes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "beta", 0 <= self.beta < 1, "a number from 0 to below 1")
        require_at_least(self, 0, "rms_floor")

    def build(self, groups: list[Group]) -> "Tiger":
        """Construct the optimizer."""
        return Tiger(groups, lr=self.learning_rate, beta=self.beta, rms_floor=self.rms_floor)

    def decay_rate(self, parameter: Tensor, group: Mapping[str, Any]) -> float | Tensor:
        """Share of the parameter that weight decay removes: eta · weight_decay."""
        eta = _eta(parameter, {"rms_floor": self.rms_floor, **group})
        rate: float | Tensor = (eta.double() if isinstance(eta, Tensor) else eta) * group["weight_decay"]
        return rate


class Tiger(PerTensor):
    """Tiger. A group's `role` is `matrix` or `elementwise`."""

    def __init__(self, groups: Any, *, lr: float, beta: float, rms_floor: float) -> None:
        defaults = {"lr": lr, "beta": beta, "rms_floor": rms_floor, "weight_decay": 0.0, "role": "matrix"}
        super().__init__(groups, defaults)

    def update(self, parameter: Tensor, grad: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        """Change a parameter in place."""
        momentum = running_mean(state, "momentum", grad, group["beta"])
        step = torch.sign(momentum).add_(parameter, alpha=group["weight_decay"])
        parameter.sub_(step.mul_(_eta(parameter, group)))

    def update_together(
        self, parameters: list[Tensor], grads: list[Tensor], group: dict[str, Any], states: list[dict[str, Any]]
    ) -> None:
        """Change parameters of one group in place."""
        steps = list(torch._foreach_sign(running_means(states, "momentum", grads, group["beta"])))
        torch._foreach_add_(steps, parameters, alpha=group["weight_decay"])
        apart = [step for parameter, step in zip(parameters, steps, strict=True) if _is_elementwise(parameter, group)]
        if apart:
            torch._foreach_mul_(apart, group["lr"] / 2)
        matrices = [(p, step) for p, step in zip(parameters, steps, strict=True) if not _is_elementwise(p, group)]
        if matrices:
            sizes = list(torch._foreach_norm([matrix for matrix, _ in matrices]))
            torch._foreach_div_(sizes, [matrix.numel() ** 0.5 for matrix, _ in matrices])
            torch._foreach_clamp_min_(sizes, group["rms_floor"])
            torch._foreach_mul_(sizes, float(group["lr"]))
            torch._foreach_mul_([step for _, step in matrices], sizes)
        torch._foreach_sub_(parameters, steps)


def _is_elementwise(parameter: Tensor, group: Mapping[str, Any]) -> bool:
    # One-dimensional parameters are element-wise in any group, so that groups made by hand are safe too.
    return group["role"] == "elementwise" or parameter.ndim < 2


def _eta(parameter: Tensor, group: Mapping[str, Any]) -> float | torch.Tensor:
    if _is_elementwise(parameter, group):
        return float(group["lr"] / 2)
    rms: torch.Tensor = parameter.detach().square().mean().sqrt()
    return rms.clamp_min(group["rms_floor"]) * float(group["lr"])
