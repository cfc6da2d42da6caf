r"""AdamW: Adam with decoupled weight decay.

    m = beta_1 m + (1 - beta_1) g,    v = beta_2 v + (1 - beta_2) g^2
    theta = theta - lr (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + eps) - lr wd theta

Why: the optimizer of nearly every published Transformer, including the models of Kuang (2025).

Source: Loshchilov and Hutter 2017, "Decoupled Weight Decay Regularization", arXiv:1711.05101, algorithm 2.
Differs from the source: the decay is multiplied by the learning rate, as in PyTorch, so it follows the schedule too.
"""

from dataclasses import dataclass
from inspect import unwrap
from typing import ClassVar, cast

import torch

from addnorm.fields import require, require_positive
from addnorm.optimization.optimizers import Group, OptimizerSpec
from addnorm.optimization.optimizers._per_tensor import EagerOptimizer


@dataclass(frozen=True, kw_only=True)
class AdamW(OptimizerSpec):
    """Spec of torch's fused AdamW.

    Raises:
        FieldError: a field is out of range.
    """

    entrywise: ClassVar[bool] = True
    scales: ClassVar[bool] = True

    learning_rate: float = 3e-4
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of the running means of the gradient and of its square."""
    eps: float = 1e-8
    """Added to the denominator for numerical stability."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "betas", all(0 <= beta < 1 for beta in self.betas), "numbers from 0 to below 1")
        require_positive(self, "eps")

    def build(self, groups: list[Group]) -> "EagerAdamW":
        """Construct the optimizer."""
        # The fused form refuses the meta device, where the bytes of the state are counted.
        fused = not any(parameter.is_meta for group in groups for parameter in group["params"])
        return EagerAdamW(
            cast(list[dict[str, object]], groups), lr=self.learning_rate, betas=self.betas, eps=self.eps, fused=fused
        )


class EagerAdamW(EagerOptimizer, torch.optim.AdamW):
    """torch's AdamW, without Dynamo. Its updates are not differentiable, which is what torch's wrapper of `step` is for."""

    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))
