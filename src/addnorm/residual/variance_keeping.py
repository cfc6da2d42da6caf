r"""Variance-keeping gate: stream and branch are mixed entry by entry, with squared weights that add up to one.

    x <- alpha * x + beta * f(x)        beta = sigma(w / residual.temperature),  alpha = sqrt(max(1 - beta^2, residual.floor))

w has an entry per branch and entry of the stream, normal at the start, so that beta is about 1/2.

Why: if stream and output have unit variance and are uncorrelated, so has their sum, at any depth and with any gate. One number
per branch is a gauge under norms: the gate decides something only where its entries differ.

Source: Muse Spark, `MuseSparkResidualGate` (temperature 0.3, floor 1e-3; norms as in `sandwich`) in Transformers,
https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/muse_spark/modeling_muse_spark.py.
Differs from the source: nothing. Where the floor holds, at beta > 0.9995, alpha has no gradient. Weight decay on w would pull
every gate to 1/2, so its role is that of a vector.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from addnorm.fields import require, require_positive
from addnorm.reduction import Reduction
from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape


@dataclass(frozen=True, kw_only=True)
class VarianceKeeping(ResidualSpec):
    """A gate per branch and entry."""

    temperature: float = 0.3
    """Divisor of w; the smaller, the faster a gate moves."""
    floor: float = 1e-3
    """Smallest value of 1 - beta^2 where the stream's weight is computed; without it, the gradient at beta = 1 is infinite."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "temperature")
        require(self, "floor", 0 <= self.floor < 1, "a number in [0, 1)")

    @classmethod
    def reduces_to(cls) -> tuple[Reduction, ...]:
        return (
            Reduction(parameters={"gate": -1000.0}, to={"residual": {"kind": "scale", "alpha": 0.0}}),
            Reduction(settings={"floor": 0.0}, parameters={"gate": 1000.0}, to={"residual": "none"}),
        )

    def build(self, shape: Shape, parts: Parts) -> "VarianceKeepingResidual":
        return VarianceKeepingResidual(shape.width, len(parts.sites), self, parts.std)


class VarianceKeepingResidual(Residual):
    parameter_roles = {"gate": "vector"}

    def __init__(self, width: int, sites: int, spec: VarianceKeeping, std: float) -> None:
        super().__init__()
        self.temperature, self.floor, self.std = spec.temperature, spec.floor, std
        self.gate = nn.Parameter(torch.empty(sites, width))

    def initialise(self, name: str, generator: torch.Generator) -> None:
        nn.init.normal_(self.gate, std=self.std, generator=generator)

    def weights(self, site: Site) -> tuple[Tensor, Tensor]:
        """The weights of the stream's entries and of the output's."""
        logit = self.gate[site.index] / self.temperature
        beta = torch.sigmoid(logit)
        # 1 - beta² as (1 - beta)(1 + beta), with 1 - beta from sigma(-logit): near beta = 1 the difference would cancel.
        alpha = torch.sqrt(torch.clamp(torch.sigmoid(-logit) * (1 + beta), min=self.floor))
        return alpha, beta

    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        alpha, beta = self.weights(site)
        return alpha * state + beta * y
