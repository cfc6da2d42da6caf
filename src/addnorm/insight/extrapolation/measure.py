"""Cross-entropy and correct predictions of a model at one length, summed by position in the window.

Memory: one batch of windows at a time, and one slice of their logits; linear in the length, as the model's attention is.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor
from torch.nn import functional as F

from addnorm.errors import InputError
from addnorm.insight.extrapolation.lengths import Lengths
from addnorm.insight.extrapolation.segments import Segments
from addnorm.statistics.measure import perplexity

BATCH_TOKENS = 4096
"""Tokens per forward pass; at least one window."""
SLICE_ENTRIES = 2**22
"""Logits compared with their targets at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LengthSums:
    """Sums over the windows of one length."""

    nats: Float64[np.ndarray, " length"]
    """Summed cross-entropy at each position of the window."""
    hits: Int64[np.ndarray, " length"]
    """Scored positions whose most likely token is the target."""
    count: Int64[np.ndarray, " length"]
    """Scored positions."""
    ending: tuple[float, int, int]
    """Nats, hits and count over the targets at the ends of the segments."""
    by_segment: Mapping[Literal["window", "ending"], Float64[np.ndarray, "segment 3"]]
    """Nats, hits and count of each segment: of every position, and of the targets at its end."""

    def to_json(self, lengths: Lengths, length: int) -> dict[str, Any]:
        """`window` (every position), `ending`, and `buckets` of positions.

        Raises:
            InputError: no target at the ends is scored, which can happen to a masked model with very little text.
        """
        edges = lengths.edges(length)
        buckets = [
            {
                "from": low,
                "to": high,
                **_scores(*(float(s[low:high].sum()) for s in (self.nats, self.hits, self.count))),
            }
            for low, high in pairwise(edges)
        ]
        if not self.ending[2]:
            raise InputError(
                "expected scored targets at the ends of windows, got none: the text is too short. Evaluate more --windows."
            )
        return {
            "length": length,
            "multiple": length // lengths.trained,
            "window": _scores(float(self.nats.sum()), float(self.hits.sum()), float(self.count.sum())),
            "ending": _scores(*(float(number) for number in self.ending)),
            "buckets": buckets,
        }


@torch.no_grad()
def measure_length(
    model: Callable[[Int64[Tensor, "batch seq"]], Float[Tensor, "batch seq vocab"]],
    text: Segments,
    lengths: Lengths,
    length: int,
    device: torch.device,
) -> LengthSums:
    """Cut the segments into windows of a length and evaluate the model on each independently.

    Args:
        model: from ids to logits, in evaluation mode.
        text: the segments that every model is evaluated on.
        lengths: the evaluation that the length belongs to.
        length: in tokens; divides the segments.
        device: of the model.
    """
    windows_per_segment = text.inputs.shape[1] // length
    # The reshape is the whole cut: a length divides a segment, so no window crosses into the next one.
    inputs, targets, scored = (a.reshape(-1, length) for a in (text.inputs, text.targets, text.scored))
    nats, hits = np.zeros(inputs.shape), np.zeros(inputs.shape, dtype=bool)
    batch = max(1, BATCH_TOKENS // length)
    for first in range(0, len(inputs), batch):
        rows = slice(first, first + batch)
        logits = model(torch.from_numpy(np.ascontiguousarray(inputs[rows])).to(device)).flatten(0, 1)
        wanted = torch.from_numpy(np.ascontiguousarray(targets[rows])).to(device).flatten()
        step = max(1, SLICE_ENTRIES // logits.shape[-1])
        parts = [_compare(part, truth) for part, truth in zip(logits.split(step), wanted.split(step), strict=True)]
        nats[rows] = torch.cat([nat for nat, _ in parts]).double().cpu().numpy().reshape(-1, length)
        hits[rows] = torch.cat([hit for _, hit in parts]).cpu().numpy().reshape(-1, length)
    nats = np.where(scored, nats, 0.0)
    hits = hits & scored
    # The last half train length of each segment is the target at every length, and even the shortest window sees half a
    # train length before it. Only there do lengths differ in context alone; over whole windows, short ones have more
    # positions with little context.
    last = np.arange(len(inputs)) % windows_per_segment == windows_per_segment - 1
    end = slice(length - lengths.ending, length)
    sums = np.stack([nats, hits, scored], axis=-1)  # [window, position, nats hits count]
    return LengthSums(
        nats=nats.sum(axis=0),
        hits=hits.sum(axis=0),
        count=scored.sum(axis=0),
        ending=(float(nats[last, end].sum()), int(hits[last, end].sum()), int(scored[last, end].sum())),
        by_segment={
            "window": sums.sum(axis=1).reshape(-1, windows_per_segment, 3).sum(axis=1),
            "ending": sums[last, end].sum(axis=1),
        },
    )


def _compare(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    return F.cross_entropy(logits, targets, reduction="none"), logits.argmax(dim=-1) == targets


def _scores(nats: float, hits: float, count: float) -> dict[str, Any]:
    """Loss in nats, accuracy, perplexity; null where nothing is scored or the loss is not finite."""
    if not count or not math.isfinite(nats):
        return {"loss": None, "accuracy": hits / count if count else None, "perplexity": None, "count": int(count)}
    loss = nats / count
    return {"loss": loss, "accuracy": hits / count, "perplexity": perplexity(loss), "count": int(count)}
