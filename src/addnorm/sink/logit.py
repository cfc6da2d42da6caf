r"""A learned sink per layer and head, as in gpt-oss.

    A_k = exp(s_k) / (exp(sink_h) + Σ_j exp(s_j)),        sink_h = sink.start at initialisation
    so that A = softmax(s) * sigma(log Σ_j exp(s_j) - sink_h)

Why: a head with nothing to say may attend to nothing, where the softmax alone makes it collect on a first token.

Source: OpenAI 2025, gpt-oss model card, arXiv:2508.10925; Xiao et al. 2023, arXiv:2309.17453 (a sink as a token).
Differs from the source: sinks start equal, in gpt-oss normal with the standard deviation of its matrices.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.reduction import Reduction
from addnorm.shape import Shape
from addnorm.sink import Coefficients, Sinks, SinkSpec


@dataclass(frozen=True, kw_only=True)
class Logit(SinkSpec):
    """One learned number per layer and head."""

    start: float = 0.0
    """Every sink at the start: 0 has the weight of one key whose score is zero."""

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(settings={"start": -800.0}, to={"sink": "none"}),
            Reduction(settings={"start": 0.5}, to={"sink": {"kind": "constant", "value": 0.5}}),
        )

    def build(self, shape: Shape) -> "LogitSinks":
        return LogitSinks(self.start, shape)


class LogitSinks(Sinks):
    parameter_roles = {"logit": "scalar"}

    def __init__(self, start: float, shape: Shape) -> None:
        super().__init__()
        self.logit = nn.ParameterList(torch.full((shape.heads,), start) for _ in range(shape.depth))

    def logits(self, layer: int) -> Tensor:
        return self.logit[layer]

    def coefficients(self) -> Coefficients:
        return {f"logit.{layer}": ([layer] * sinks.numel(), sinks.detach()) for layer, sinks in enumerate(self.logit)}
