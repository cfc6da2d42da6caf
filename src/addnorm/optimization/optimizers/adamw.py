r"""AdamW: Adam with decoupled weight decay.

    m = beta_1 m + (1 - beta_1) g,    v = beta_2 v + (1 - beta_2) g^2
    theta = theta - lr (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + eps) - lr wd theta

Why: what nearly every published Transformer is trained with, Kuang's (2025) models among them.

Source: Loshchilov and Hutter 2017, "Decoupled Weight Decay Regularization", arXiv:1711.05101, algorithm 2.
Differs from the source: the decay is multiplied by the learning rate, as in PyTorch, so the schedule reaches it too.
"""

from dataclasses import dataclass
from typing import cast

import torch

from addnorm.errors import InputError
from addnorm.optimization.optimizers import Group, OptimizerSpec, require_share


@dataclass(frozen=True, kw_only=True)
class AdamW(OptimizerSpec):
    """Spec of torch's AdamW, in its fused form.

    Raises:
        InputError: a field is out of range.
    """

    learning_rate: float = 3e-4
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.999)
    """Shares of the running means of the gradient and of its square that stay in a step."""
    eps: float = 1e-8
    """Keeps the division finite."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, beta in zip(("betas[0]", "betas[1]"), self.betas, strict=True):
            require_share(name, beta)
        if not self.eps > 0:
            raise InputError(f"eps must be positive, got {self.eps}.")

    def build(self, groups: list[Group]) -> torch.optim.AdamW:
        """The optimizer."""
        # The fused form refuses the meta device, where a plan counts the bytes of the state.
        fused = not any(parameter.is_meta for group in groups for parameter in group["params"])
        return torch.optim.AdamW(
            cast(list[dict[str, object]], groups), lr=self.learning_rate, betas=self.betas, eps=self.eps, fused=fused
        )
