r"""Muon: hidden matrices move by their orthogonalised momentum, all other parameters by AdamW.

    m = mu m + (1 - mu) g,    u = mu m + (1 - mu) g        if nesterov
    m = mu m + (1 - mu) g,    u = m        if not nesterov
    X = u / |u|,    X = a X + (b A + c A A) X with A = X X^T, five times: all singular values come close to one
    theta = theta - lr s X - lr wd theta,    s = sqrt(max(1, rows / columns))        if scale == 'shape'
    theta = theta - lr s X - lr wd theta,    s = 0.2 sqrt(max(rows, columns))        if scale == 'rms'

Why: the steps of a matrix have one spectral norm, where Adam's follow the few largest directions; the optimizer of the fastest
small language models. One state per hidden matrix instead of AdamW's two.

Source: Jordan et al. 2024, "Muon", https://kellerjordan.github.io/posts/muon/; the scale `rms`, with which AdamW's rate and
decay serve both: Liu et al. 2025, "Muon is Scalable for LLM Training", arXiv:2502.16982, equation 4.
Differs from the source: the iteration is computed in the gradient's type, not in bfloat16. Hidden matrices are found by their
roles, not by names; a stack of matrices is orthogonalised one by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from addnorm.fields import require, require_positive
from addnorm.optimization.optimizers import Group, OptimizerSpec, parameter_groups
from addnorm.optimization.optimizers._per_tensor import (
    PerTensor,
    adam_direction,
    adam_directions,
    running_mean,
    running_means,
)

_A, _B, _C = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5
_SMALLEST = 1e-7


@dataclass(frozen=True, kw_only=True)
class MuonSpec(OptimizerSpec):
    """Spec of Muon.

    Raises:
        FieldError: a field is out of range.
    """

    learning_rate: float = 0.02
    weight_decay: float = 0.1
    adamw_learning_rate: float = 3e-4
    """Peak learning rate of AdamW, for embeddings, the head, vectors and scalars. The schedule multiplies both rates."""
    momentum: float = 0.95
    """Decay rate of the momentum of hidden matrices."""
    nesterov: bool = True
    """True for Nesterov's momentum."""
    scale: Literal["shape", "rms"] = "shape"
    """Size of a step: by the matrix's shape, or with the root mean square of AdamW's (then rates of AdamW fit)."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay rates of AdamW."""
    eps: float = 1e-8
    """Added to AdamW's denominator."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "adamw_learning_rate", "eps")
        require(self, "momentum", 0 <= self.momentum < 1, "a number from 0 to below 1")
        require(self, "betas", all(0 <= beta < 1 for beta in self.betas), "numbers from 0 to below 1")

    def groups(self, model: nn.Module) -> list[Group]:
        """The model's parameters, hidden matrices apart from embeddings and head."""
        return parameter_groups(model, weight_decay=self.weight_decay, decay_on=self.decay_on, apart={"hidden_matrix"})

    def build(self, groups: list[Group]) -> "Muon":
        """Construct the optimizer."""
        return Muon(groups, self)

    def decay_rate(self, parameter: Tensor, group: Mapping[str, Any]) -> float:
        """Share of the parameter that weight decay removes, at the rate of its group."""
        return _rate(group, self) * float(group["weight_decay"])


class Muon(PerTensor):
    """Muon for groups of the role `hidden_matrix`, AdamW for all others."""

    def __init__(self, groups: Any, spec: MuonSpec) -> None:
        super().__init__(groups, {"lr": spec.learning_rate, "weight_decay": 0.0, "role": "matrix"})
        self._spec = spec

    def update(self, parameter: Tensor, grad: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        """Change a parameter in place."""
        spec, rate = self._spec, _rate(group, self._spec)
        if _is_orthogonalised(group):
            momentum = running_mean(state, "momentum", grad, spec.momentum)
            step = orthogonalised(torch.lerp(grad, momentum, spec.momentum) if spec.nesterov else momentum)
            rows, columns = parameter.shape[-2:]
            step.mul_(_step_size(rows, columns, spec.scale))
        else:
            step = adam_direction(state, grad, spec.betas, spec.eps)
        parameter.mul_(1 - rate * group["weight_decay"]).sub_(step, alpha=rate)

    def update_together(
        self, parameters: list[Tensor], grads: list[Tensor], group: dict[str, Any], states: list[dict[str, Any]]
    ) -> None:
        """Change parameters of one group in place; matrices of one shape are orthogonalised as one stack."""
        spec, rate = self._spec, _rate(group, self._spec)
        if _is_orthogonalised(group):
            moved = running_means(states, "momentum", grads, spec.momentum)
            moved = list(torch._foreach_lerp(grads, moved, spec.momentum)) if spec.nesterov else moved
            steps = _orthogonalised_by_shape(moved)
            sizes = [matrix.shape[-2:] for matrix in parameters]
            torch._foreach_mul_(steps, [_step_size(rows, columns, spec.scale) for rows, columns in sizes])
        else:
            steps = adam_directions(states, grads, spec.betas, spec.eps)
        torch._foreach_mul_(parameters, 1 - rate * group["weight_decay"])
        torch._foreach_sub_(parameters, steps, alpha=rate)


def _step_size(rows: int, columns: int, scale: str) -> float:
    return float(max(1.0, rows / columns) ** 0.5 if scale == "shape" else 0.2 * max(rows, columns) ** 0.5)


def _orthogonalised_by_shape(matrices: list[Tensor]) -> list[Tensor]:
    steps: list[Tensor] = list(matrices)
    for shape in dict.fromkeys(matrix.shape for matrix in matrices):
        places = [i for i, matrix in enumerate(matrices) if matrix.shape == shape]
        stack = orthogonalised(torch.stack([matrices[i] for i in places]))
        for i, step in zip(places, stack, strict=True):
            steps[i] = step
    return steps


def orthogonalised(matrix: Tensor) -> Tensor:
    """Move all singular values of a matrix, or of each matrix of a stack, close to one (0.7 to 1.2); zeros stay zeros."""
    # The product of the wide form with its transpose has the smaller of the two sizes.
    wide = matrix.mT if matrix.shape[-2] > matrix.shape[-1] else matrix
    x = wide / torch.linalg.matrix_norm(wide, keepdim=True).clamp_min(_SMALLEST)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x.mT.contiguous() if wide is not matrix else x


def _is_orthogonalised(group: Mapping[str, Any]) -> bool:
    return bool(group["role"] == "hidden_matrix")


def _rate(group: Mapping[str, Any], spec: MuonSpec) -> float:
    """The step's learning rate of a group: the training loop sets that of hidden matrices everywhere."""
    ratio = 1.0 if _is_orthogonalised(group) else spec.adamw_learning_rate / spec.learning_rate
    return float(group["lr"] * ratio)
