r"""Local window: a position attends only to the nearest `window` positions, as many as the train length.

    score_{mn} <- -inf where |m - n| >= window,        window = T unless given

Why: no distance occurs that the model was not trained on. A model that is not better than this does not use more text: it is
the baseline for length extrapolation.

Source: Su 2023, "长度外推性与局部注意力", https://kexue.fm/archives/9431, section on windowed attention; Beltagy et al. 2020,
"Longformer", arXiv:2004.05150, sliding window.
Differs from the source: a masked model attends to `window` - 1 positions on either side. Absolute positions still grow.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from addnorm.errors import InputError
from addnorm.insight.extrapolation.switches import Reach, SwitchSpec, require_softmax
from addnorm.insight.positioned import Wrapped
from addnorm.kernels.grouped_attention import DistanceBias
from addnorm.model.architecture import Architecture
from addnorm.position import Position


@dataclass(frozen=True, kw_only=True)
class LocalWindow(SwitchSpec):
    """Size of the window."""

    window: int | None = None
    """Number of positions, including the query's own; None for the train length."""

    changes: ClassVar[str] = "sight"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is not None and self.window < 1:
            raise InputError(f"local_window: expected a window of at least 1 position, got {self.window}.")

    def require(self, model: Architecture) -> None:
        require_softmax(self.kind, model)

    def wrap(self, position: Position, reach: Reach) -> Position:
        window = reach.trained if self.window is None else self.window
        return LastKeys(position, window) if reach.causal else NearestKeys(position, window)


class LastKeys(Wrapped):
    """Sliding window of a causal model, which attention implements: keys outside it are not computed."""

    def __init__(self, inner: Position, window: int) -> None:
        super().__init__(inner)
        self.size = window

    def window(self, prepared: Any) -> int | None:
        inner, own = self.inner.window(prepared[0]), prepared[1]
        return min((size for size in (inner, own) if size is not None), default=None)

    def own(self, start: int, seq: int, like: Tensor) -> int | None:
        return self.size if start + seq > self.size else None  # nothing to hide


class NearestKeys(Wrapped):
    """Window of a masked model, to either side, as a mask added to the scores: attention implements causal windows only."""

    def __init__(self, inner: Position, window: int) -> None:
        super().__init__(inner)
        self.size = window

    def own(self, start: int, seq: int, like: Tensor) -> DistanceBias | None:
        if start + seq <= self.size:
            return None  # nothing to hide
        distance = torch.arange(1 - seq, start + seq, device=like.device)
        hidden = torch.zeros(distance.shape, dtype=like.dtype, device=like.device)
        return DistanceBias(values=hidden.masked_fill(distance.abs() >= self.size, float("-inf"))[None], first=1 - seq)

    def layer_bias(self, layer: int, x: Tensor, prepared: Any) -> Any:
        inner, mask = self.inner.layer_bias(layer, x, prepared[0]), prepared[1]
        if mask is None or inner is None:
            return inner if mask is None else mask
        # The inner bias may span more distances than the mask; the two are aligned by the distance of their first
        # entry.
        if isinstance(inner, DistanceBias):
            skipped, span = mask.first - inner.first, mask.values.shape[1]
            return DistanceBias(values=inner.values[:, skipped : skipped + span] + mask.values, first=mask.first)
        return inner + mask.matrix(*inner.shape[-2:])
