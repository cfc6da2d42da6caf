r"""Local window: a position sees the nearest `window` positions alone, as many as the train length.

    score_{mn} <- -inf where |m - n| >= window,        window = T unless given

Why: no distance occurs that the model was not trained on; a model that does no better than this has not learned to use
more. It is the reference line that length extrapolation has to beat.

Source: Su 2023, "长度外推性与局部注意力", https://kexue.fm/archives/9431, section on windowed attention; Beltagy et al. 2020,
"Longformer", arXiv:2004.05150, sliding window.
Differs from the source: a masked model sees `window` - 1 positions to either side. Absolute positions still grow.
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
    """How far a position sees."""

    window: int | None = None
    """Positions, the own one included; None for the train length."""

    changes: ClassVar[str] = "sight"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is not None and self.window < 1:
            raise InputError(f"local_window needs a window of at least 1 position, got {self.window}.")

    def require(self, model: Architecture) -> None:
        require_softmax(self.kind, model)

    def wrap(self, position: Position, reach: Reach) -> Position:
        window = reach.trained if self.window is None else self.window
        return LastKeys(position, window) if reach.causal else NearestKeys(position, window)


class LastKeys(Wrapped):
    """The window of a causal model, which attention knows: keys outside it are not computed."""

    def __init__(self, inner: Position, window: int) -> None:
        super().__init__(inner)
        self.most = window

    def window(self, prepared: Any) -> int | None:
        inner, mine = self.inner.window(prepared[0]), prepared[1]
        return min((most for most in (inner, mine) if most is not None), default=None)

    def own(self, start: int, seq: int, like: Tensor) -> int | None:
        return self.most if start + seq > self.most else None  # nothing to hide


class NearestKeys(Wrapped):
    """The window of a masked model, to either side, as a mask that joins the scores: attention knows none."""

    def __init__(self, inner: Position, window: int) -> None:
        super().__init__(inner)
        self.most = window

    def own(self, start: int, seq: int, like: Tensor) -> DistanceBias | None:
        if start + seq <= self.most:
            return None  # nothing to hide
        distance = torch.arange(1 - seq, start + seq, device=like.device)
        hidden = torch.zeros(distance.shape, dtype=like.dtype, device=like.device)
        return DistanceBias(values=hidden.masked_fill(distance.abs() >= self.most, float("-inf"))[None], first=1 - seq)

    def score_bias(self, layer: int, prepared: Any) -> Any:
        inner, mine = self.inner.score_bias(layer, prepared[0]), prepared[1]
        if mine is None or inner is None:
            return inner if mine is None else mine
        if isinstance(inner, DistanceBias):
            skipped, span = mine.first - inner.first, mine.values.shape[1]
            return DistanceBias(values=inner.values[:, skipped : skipped + span] + mine.values, first=mine.first)
        return inner + mine.matrix(*inner.shape[-2:])
