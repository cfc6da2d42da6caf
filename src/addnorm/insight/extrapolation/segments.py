"""Segments: the held-out text that every model is evaluated on, at every length.

The number of tokens of a segment is a common multiple of all lengths. At a length, a segment is cut into windows that are
evaluated independently, so every length scores the same target tokens and differs only in how much preceding text the model
sees. The last windows of all lengths end at the same token.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from addnorm.data import Dataset, held_batches, mask_tokens
from addnorm.errors import InputError
from addnorm.insight.extrapolation.lengths import Lengths


@dataclass(frozen=True, kw_only=True, eq=False)
class Segments:
    """Token ids that a model reads, and those that it has to predict."""

    inputs: Int64[np.ndarray, "segment token"]
    targets: Int64[np.ndarray, "segment token"]
    scored: Bool[np.ndarray, "segment token"]
    """Positions whose target counts: all of them for causal models, but of a task its answers."""


def num_segments(held_tokens: int, lengths: Lengths, windows: int) -> int:
    """Count the segments that hold at least `windows` windows of the longest length, or as many as the text has.

    Args:
        held_tokens: of the held-out text.
        lengths: of the evaluation.
        windows: wanted windows of the longest length.

    Raises:
        InputError: `windows` is below one, or the text is shorter than one segment.
    """
    if windows < 1:
        raise InputError(f"windows: expected a whole number of at least 1, got {windows}.")
    available = (held_tokens - 1) // lengths.segment_tokens
    if available < 1:
        most = max(
            (m for m in range(1, 1 + held_tokens // lengths.trained) if m * lengths.trained < held_tokens), default=0
        )
        several = "" if lengths.segment_tokens == lengths.longest else " (the least common multiple of the lengths)"
        advice = f"Take at most {most}x, or" if most else "Take"
        raise InputError(
            f"the longest window must fit into the held-out text: {lengths.multiples[-1]}x of {lengths.trained} tokens needs "
            f"{lengths.segment_tokens} + 1 tokens{several}, the held-out text has {held_tokens}. {advice} a corpus with more "
            "text or a larger held_out share."
        )
    return min(available, -(-windows * lengths.longest // lengths.segment_tokens))


def held_out_segments(dataset: Dataset, objective: str, lengths: Lengths, windows: int) -> Segments:
    """Take segments at equal distances from the held-out text: the same for every model and seed of a study.

    For masked models, tokens are hidden once per segment, so that every length predicts the same tokens.

    Raises:
        InputError: as for `num_segments`.
    """
    count = num_segments(len(dataset.held), lengths, windows)
    (tokens,) = held_batches(dataset, count, lengths.segment_tokens, count)
    if objective == "causal":
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        # Every length is a multiple of the trained one, which holds whole episodes.
        row = True if dataset.episodes is None else dataset.episodes.scored(inputs.shape[1])
        return Segments(inputs=inputs, targets=targets, scored=np.broadcast_to(row, inputs.shape).copy())
    # Hidden per segment and before it is cut into windows. Drawn per window, other lengths would predict other tokens,
    # and differences between lengths would be differences of the text.
    rows = [
        mask_tokens(row[None, :-1], vocab=dataset.vocab, mask_id=dataset.mask_id, seed=0, step=index)
        for index, row in enumerate(tokens)
    ]
    inputs, targets, scored = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    return Segments(inputs=inputs, targets=targets, scored=scored)
