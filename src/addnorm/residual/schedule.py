r"""Progressive residual: during training the layers join one after another.

    x_{l+1} = x_l + min(t / (T m), 1) f_l(x_l)        t: training step; m: layer, from 1; T: residual.steps

Why: early layers settle before later ones read them. From step T L on it is the plain residual; at step 0 the model is the
identity on the embeddings.

Source: 2026, "ProRes", arXiv:2603.05369.
Differs from the source: the linear schedule alone. The step is a buffer that training sets before every step: a checkpoint, a
resumed run and an exported model hold it; a model that was never trained is at step 0.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from addnorm.errors import InputError
from addnorm.fields import require
from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class Schedule(ResidualSpec):
    """Branch weights that grow during training."""

    steps: int = 100
    """Number of training steps after which the first layer has joined; layer m takes m times as many."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "steps", self.steps >= 1, "at least 1")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(parameters={"step": 1e9}, to={"residual": "add"}),
            Reduction(parameters={"step": 0}, to={"residual": {"kind": "scale", "alpha": 0.0}}),
            Reduction(
                settings={"steps": 8},
                parameters={"step": 2},
                given={"depth": 1},
                to={"residual": {"kind": "scale", "alpha": 0.25}},
            ),
        )

    def build(self, shape: Shape, parts: Parts) -> "ScheduleResidual":
        return ScheduleResidual(self.steps)


class ScheduleResidual(Residual):
    step: Tensor

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def require_steps(self, steps: int) -> None:
        depth = self.sites[-1].layer + 1
        if steps < self.steps * depth:
            raise InputError(
                f"residual.steps: expected at most {steps // depth}, so that {depth} layers have joined within {steps} "
                f"training steps, got {self.steps}."
            )

    def advance(self, step: int) -> None:
        self.step.fill_(step)

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        share = (self.step.to(y.dtype) / (self.steps * (site.layer + 1))).clamp(max=1)
        return state + share * y
