r"""Every sequence takes a share of the branch's mean over the batch.

    x + f(x) + mean_b f(x)_b

Why: to be rejected.

Source: none; a planted fault.
Differs from the source: everything.
"""

from dataclasses import dataclass

from torch import Tensor

from addnorm.residual import Parts, Residual, ResidualSpec, Site, Stream
from addnorm.shape import Shape

BREAKS = "keeps_sequences_apart"


@dataclass(frozen=True, kw_only=True)
class MeanOverSequences(ResidualSpec):
    """A broken residual."""

    def build(self, shape: Shape, parts: Parts) -> "MeanOverSequencesResidual":
        return MeanOverSequencesResidual()


class MeanOverSequencesResidual(Residual):
    def write(self, state: Tensor, y: Stream, site: Site) -> Tensor:
        return state + y + 0.1 * y.mean(dim=0, keepdim=True)
