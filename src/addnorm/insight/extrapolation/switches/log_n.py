r"""Log-n scaling: beyond the train length, scores grow with the logarithm of the number of visible positions.

    score_{mn} <- max(1, log n_m / log T) * score_{mn}

n_m is the number of positions that query m attends to (m + 1 in a causal model, the length in a masked one, fewer in a
window), T the train length. Position biases that are added to the scores are not scaled.

Why: the entropy of the attention stays about the same while n grows; without it attention spreads over long texts.

Source: Su 2021, "从熵不变性看Attention的Scale操作", https://kexue.fm/archives/8823, log_512 n; Chiang and Cholak 2022,
arXiv:2202.12172, log-length scaled attention.
Differs from the source: there the model is trained with the factor. As a switch it acts only beyond the train length (the
factor is at least 1), so that nothing changes where the model was trained.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from addnorm.catalogue import ROOMS
from addnorm.errors import InputError
from addnorm.insight.extrapolation.switches import Reach, SwitchSpec, require_softmax
from addnorm.insight.extrapolation.switches.local_window import NearestKeys
from addnorm.insight.positioned import Wrapped
from addnorm.kernels import precise
from addnorm.model.architecture import Architecture
from addnorm.position import Position


@dataclass(frozen=True, kw_only=True)
class LogN(SwitchSpec):
    """No settings."""

    changes: ClassVar[str] = "scale"

    def require(self, model: Architecture) -> None:
        require_softmax(self.kind, model)
        if len(set(model.windows)) > 1 and model.scores.kind != ROOMS["scores"].plain:
            # A factor of the queries would reach later layers with the factor of the layer that made the scores.
            raise InputError(
                "switch 'log_n': expected one window for all layers, as scores are summed over them, got "
                f"{list(model.windows)}. Leave the switch out, or choose variants with --variant."
            )

    def wrap(self, position: Position, reach: Reach) -> Position:
        return LogNPosition(position, reach)


class LogNPosition(Wrapped):
    def __init__(self, inner: Position, reach: Reach) -> None:
        super().__init__(inner)
        self.reach = reach

    def own(self, start: int, seq: int, like: Tensor) -> Tensor:
        """Number of positions up to every query's own, Float64[Tensor, "seq 1"]."""
        return torch.arange(start + 1, start + seq + 1, dtype=torch.float64, device=precise(like.device))[:, None]

    def rotate_layer(self, layer: int, query: Tensor, key: Tensor, prepared: Any) -> tuple[Tensor, Tensor]:
        query, key = self.inner.rotate_layer(layer, query, key, prepared[0])
        nearest = self.inner.size if isinstance(self.inner, NearestKeys) else None
        windows = self.reach.windows[layer % len(self.reach.windows)], self.inner.window(prepared[0]), nearest
        window = min((size for size in windows if size is not None), default=None)
        seen = prepared[1].clamp(max=window or math.inf)
        if not self.reach.causal:
            seen = seen + (self.reach.length - prepared[1]).clamp(max=window - 1 if window else math.inf)
        factor = (seen.log() / math.log(self.reach.trained)).clamp(min=1.0)
        return query * factor.to(query.dtype).to(query.device), key
